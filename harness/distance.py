"""How far tensors are from each other: the measures that parity judges by, all in fp64."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

OUTLIER = 1000.0  # times the median size: beyond, an element hides all others in an RMS
BLOCK = 1024  # elements: enough for a steady RMS, few enough to see a wrong part of a tensor
MEDIAN_SAMPLE = 1 << 20  # elements: a median over more would cost more than it says


def wide(tensor: torch.Tensor) -> torch.Tensor:
    """The values in fp64, flat; complex ones as their real and imaginary parts."""
    plain = tensor.detach()
    if plain.is_complex():
        plain = torch.view_as_real(plain.to(torch.complex128).resolve_conj())
    return plain.to(torch.float64).flatten()


def rms(tensor: torch.Tensor) -> float:
    return float(wide(tensor).square().mean().sqrt()) if tensor.numel() else 0.0


def peak(tensor: torch.Tensor) -> float:
    return float(wide(tensor).abs().max()) if tensor.numel() else 0.0


def is_exact_kind(tensor: torch.Tensor) -> bool:
    """Integers and booleans: they are equal or they are not."""
    return not (tensor.is_floating_point() or tensor.is_complex())


def same_bits(left: torch.Tensor, right: torch.Tensor) -> bool:
    """Equal in shape, type and every value, with NaN equal to NaN."""
    if left.shape != right.shape or left.dtype != right.dtype:
        return False
    if torch.equal(left, right):
        return True
    return bool(((left == right) | (left.isnan() & right.isnan())).all())


def rmse(left: torch.Tensor, right: torch.Tensor) -> float:
    """RMS of the difference, for integers the share of elements that differ.

    ``inf`` when one side has an infinity or NaN where the other has not the same.
    """
    if left.numel() == 0:
        return 0.0
    if is_exact_kind(left):
        return float((left != right).double().mean())
    a, b = wide(left), wide(right)
    finite = torch.isfinite(a) & torch.isfinite(b)
    if not bool((finite | _same_kind(a, b)).all()):
        return math.inf
    return rms((a - b)[finite])


@dataclass(frozen=True, slots=True, kw_only=True)
class Sides:
    """The values of truth, eager and candidate that can be compared: fp64, flat, finite, as long.

    ``blind`` counts the elements where eager overflowed and nothing is known.
    """

    truth: torch.Tensor
    eager: torch.Tensor
    candidate: torch.Tensor
    blind: int = 0

    def part(self, chosen: torch.Tensor) -> Sides:
        return Sides(truth=self.truth[chosen], eager=self.eager[chosen], candidate=self.candidate[chosen])


def align(
    exact: torch.Tensor | None, eager: torch.Tensor, candidate: torch.Tensor, *, reduced: bool
) -> Sides | str:
    """The comparable elements, or what is wrong where a value is infinite or NaN.

    - Where eager is finite, the candidate must be. Where fp64 is not (a mask of
      the type's lowest number, which is another number in fp64), eager is the truth.
    - Where eager and fp64 are the same infinity, or both NaN, so must the candidate be.
    - Elsewhere eager overflowed, which says nothing about the candidate.
    """
    ours, theirs = wide(eager), wide(candidate)
    meant = ours if exact is None else wide(exact)
    truth = _within(meant, eager.dtype)
    fine = [torch.isfinite(side) for side in (truth, ours, theirs)]
    if all(bool(side.all()) for side in fine):
        return Sides(truth=truth, eager=ours, candidate=theirs)
    lost = fine[1] & ~fine[2]
    if bool(lost.any()):
        return f"{int(lost.sum())} values are not finite where eager's are"
    # without an fp64 run, an infinity of reduced precision may be an overflow that the candidate avoids
    excused = exact is None and reduced
    owed = _same_kind(meant, ours) & ~_same_kind(ours, theirs)
    if bool(owed.any()) and not excused:
        return f"{int(owed.sum())} values are not the infinity or NaN that eager gives there"
    blind = ~fine[1] & (~_same_kind(meant, ours) | excused)
    judged = fine[1]
    return Sides(
        truth=torch.where(fine[0], truth, ours)[judged],
        eager=ours[judged],
        candidate=theirs[judged],
        blind=int(blind.sum()),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Distance:
    """How far eager and candidate are from the truth, and how large the truth is (all absolute)."""

    scale: float
    peak: float
    eager_rmse: float
    eager_max: float
    candidate_rmse: float
    candidate_max: float

    @classmethod
    def measure(cls, sides: Sides) -> Distance:
        eager, candidate = sides.eager - sides.truth, sides.candidate - sides.truth
        return cls(
            scale=rms(sides.truth),
            peak=peak(sides.truth),
            eager_rmse=rms(eager),
            eager_max=peak(eager),
            candidate_rmse=rms(candidate),
            candidate_max=peak(candidate),
        )

    @classmethod
    def shares(cls, exact: torch.Tensor, eager: torch.Tensor, candidate: torch.Tensor) -> Distance:
        """For integers and booleans: the share of elements that are not the truth's (scale 1)."""
        wrong = [float((side != exact).double().mean()) for side in (eager, candidate)]
        return cls(
            scale=1.0,
            peak=1.0,
            eager_rmse=wrong[0],
            eager_max=wrong[0],
            candidate_rmse=wrong[1],
            candidate_max=wrong[1],
        )


def bulk(sides: Sides) -> Sides | None:
    """The elements that are left without outliers, or None where there are no outliers."""
    size = sides.truth.abs()
    sample = size[:: max(1, size.numel() // MEDIAN_SAMPLE)]
    sample = sample[sample > 0]
    if sample.numel() == 0:
        return None
    ordinary = size <= OUTLIER * sample.median()
    return None if bool(ordinary.all()) else sides.part(ordinary)


@dataclass(frozen=True, slots=True, kw_only=True)
class Blocks:
    """RMS of truth and errors in each run of ``BLOCK`` elements: three tensors, as long."""

    scale: torch.Tensor
    eager: torch.Tensor
    candidate: torch.Tensor

    @classmethod
    def measure(cls, sides: Sides) -> Blocks:
        whole = sides.truth.numel() // BLOCK * BLOCK

        def by_block(values: torch.Tensor) -> torch.Tensor:
            return values[:whole].view(-1, BLOCK).square().mean(1).sqrt()

        return cls(
            scale=by_block(sides.truth),
            eager=by_block(sides.eager - sides.truth),
            candidate=by_block(sides.candidate - sides.truth),
        )


def _within(values: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Values beyond what ``dtype`` can hold become infinite, as they would in it."""
    if not (dtype.is_floating_point or dtype.is_complex):
        return values
    return torch.where(values.abs() > torch.finfo(dtype).max, values * math.inf, values)


def _same_kind(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    """Where both are NaN, or both the same infinity."""
    return (left.isnan() & right.isnan()) | (left.isinf() & (left == right))
