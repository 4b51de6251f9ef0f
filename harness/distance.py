"""How far tensors are from each other: the measures that parity judges by, all in fp64."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

OUTLIER = 1000.0  # times the median size: beyond, an element hides all others in an RMS
BLOCK = 1024  # elements: enough for a steady RMS, few enough to see a wrong part of a tensor
MEDIAN_SAMPLE = 1 << 16  # elements: the median is known to half a per cent, and outliers are far from it
CHUNK = 256 * BLOCK  # elements: an fp64 copy that stays in the cache, and still work for a few threads
CHUNK_ELSEWHERE = 1 << 25  # on a GPU every chunk is a handful of launches

PLAIN = (torch.float64, torch.float32, torch.bfloat16, torch.float16)


def flat(tensor: torch.Tensor) -> torch.Tensor:
    """The values, flat: usual types as they are, others in fp64, complex ones as real and imaginary parts."""
    plain = tensor.detach()
    if plain.is_complex():
        plain = torch.view_as_real(plain.to(torch.complex128).resolve_conj())
    return plain.flatten() if plain.dtype in PLAIN else plain.to(torch.float64).flatten()


def wide(tensor: torch.Tensor) -> torch.Tensor:
    """The values in fp64, flat; complex ones as their real and imaginary parts."""
    return flat(tensor).to(torch.float64)


def rms(tensor: torch.Tensor) -> float:
    return _Sum.of(flat(tensor)).rms


def peak(tensor: torch.Tensor) -> float:
    return _largest(flat(tensor)) if tensor.numel() else 0.0


def is_exact_kind(tensor: torch.Tensor) -> bool:
    """Integers and booleans: they are equal or they are not."""
    return not (tensor.is_floating_point() or tensor.is_complex())


def same_bits(left: torch.Tensor, right: torch.Tensor) -> bool:
    """Equal in shape, type and every value, with NaN equal to NaN."""
    if left.shape != right.shape or left.dtype != right.dtype:
        return False
    if left is right or torch.equal(left, right):
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
    a, b = flat(left), flat(right)
    if not (_largest(a) < math.inf and _largest(b) < math.inf):
        a, b = wide(a), wide(b)
        finite = torch.isfinite(a) & torch.isfinite(b)
        if not bool((finite | _same_kind(a, b)).all()):
            return math.inf
        a, b = a[finite], b[finite]
    return _Sum.of(a, b).rms


@dataclass(frozen=True, slots=True, kw_only=True)
class Sides:
    """The values of truth, eager and candidate that can be compared: flat, finite, as long.

    ``blind`` counts the elements where eager overflowed and nothing is known.
    """

    truth: torch.Tensor
    eager: torch.Tensor
    candidate: torch.Tensor
    blind: int = 0


def align(
    exact: torch.Tensor | None, eager: torch.Tensor, candidate: torch.Tensor, *, reduced: bool
) -> Sides | str:
    """The comparable elements, or what is wrong where a value is infinite or NaN.

    - Where eager is finite, the candidate must be. Where fp64 is not (a mask of
      the type's lowest number, which is another number in fp64), eager is the truth.
    - Where eager and fp64 are the same infinity, or both NaN, so must the candidate be.
    - Elsewhere eager overflowed, which says nothing about the candidate.
    """
    ours = flat(eager)
    theirs = ours if candidate is eager else flat(candidate)
    meant = ours if exact is None else flat(exact)
    if all(_largest(side) <= _limit(eager.dtype) for side in (meant, ours, theirs) if side.numel()):
        return Sides(truth=meant, eager=ours, candidate=theirs)
    ours, theirs, meant = wide(ours), wide(theirs), wide(meant)
    truth = torch.where(meant.abs() > _limit(eager.dtype), meant * math.inf, meant)
    fine = [torch.isfinite(side) for side in (truth, ours, theirs)]
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Blocks:
    """RMS of truth and errors in each whole run of ``BLOCK`` elements: three tensors, as long."""

    scale: torch.Tensor
    eager: torch.Tensor
    candidate: torch.Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """What is the same for every candidate."""

    truth: _Sum
    eager: _Sum


def know(sides: Sides, most: float = math.inf) -> Known:
    """Of truths up to ``most`` alone, where that is finite."""
    return Known(
        truth=_Sum.of(sides.truth, kept=sides.truth, most=most),
        eager=_Sum.of(sides.eager, sides.truth, sides.truth, most),
    )


def measure(sides: Sides, known: Known | None = None, *, most: float = math.inf) -> tuple[Distance, Blocks]:
    """Of the whole and of its blocks, in one pass; of truths up to ``most`` alone, where that is finite."""
    known = known or know(sides, most)
    truth, eager = known.truth, known.eager
    same = sides.candidate is sides.eager
    candidate = eager if same else _Sum.of(sides.candidate, sides.truth, sides.truth, most)
    distance = Distance(
        scale=truth.rms,
        peak=truth.peak,
        eager_rmse=eager.rms,
        eager_max=eager.peak,
        candidate_rmse=candidate.rms,
        candidate_max=candidate.peak,
    )
    return distance, Blocks(scale=truth.blocks, eager=eager.blocks, candidate=candidate.blocks)


def bulk(sides: Sides, largest: float) -> Distance | None:
    """What is measured of the elements that are left without outliers, or None where there are none.

    ``largest`` is the largest absolute value of the truth.
    """
    # an odd step, or it may stay in a few of a matrix's columns
    sample = sides.truth[:: max(1, sides.truth.numel() // MEDIAN_SAMPLE) | 1].abs()
    sample = sample[sample > 0]
    if sample.numel() == 0:
        return None
    most = OUTLIER * float(sample.median())
    return None if largest <= most else measure(sides, most=most)[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sum:
    """RMS and largest size of a tensor's elements, and the RMS of each of its blocks, in fp64."""

    rms: float
    peak: float
    blocks: torch.Tensor

    @classmethod
    def of(
        cls,
        values: torch.Tensor,
        less: torch.Tensor | None = None,
        kept: torch.Tensor | None = None,
        most: float = math.inf,
    ) -> _Sum:
        """Of ``values`` or of what they differ by from ``less``, only where ``kept`` is up to ``most``.

        Chunk by chunk, in the same few kilobytes: to ask the system for the memory of whole fp64 copies
        costs many times what the arithmetic on them does.
        """
        count = values.numel()
        blocks = values.new_zeros(count // BLOCK, dtype=torch.float64)
        if less is values or count == 0:
            return cls(rms=0.0, peak=0.0, blocks=blocks)
        size = min(count, CHUNK if values.device.type == "cpu" else CHUNK_ELSEWHERE)
        buffer = values.new_empty(size, dtype=torch.float64)
        rest = values.new_zeros((), dtype=torch.float64)
        peaks, left = [], count
        for start in range(0, count, size):
            part = buffer[: min(size, count - start)].copy_(values[start : start + size])
            if less is not None:
                part.sub_(less[start : start + size])
            if kept is not None and most < math.inf:
                out = kept[start : start + size].abs() > most
                part.masked_fill_(out, 0.0)
                left -= int(out.sum())
            peaks.append(_extremes(part))
            whole = part.numel() // BLOCK * BLOCK
            first = start // BLOCK
            blocks[first : first + whole // BLOCK] = torch.linalg.vector_norm(
                part[:whole].view(-1, BLOCK), dim=1
            )
            rest += part[whole:].square().sum()
        squares = float(torch.dot(blocks, blocks) + rest)
        return cls(
            rms=math.sqrt(squares / max(1, left)) if squares >= 0 else math.nan,
            peak=float(torch.stack(peaks).max()),
            blocks=blocks / math.sqrt(BLOCK),
        )


def _extremes(values: torch.Tensor) -> torch.Tensor:
    """The largest absolute value. NaN where there is one. Much faster than ``isfinite`` and ``abs``."""
    low, high = torch.aminmax(values)
    return torch.maximum(-low, high)


def _largest(values: torch.Tensor) -> float:
    return float(_extremes(values)) if values.numel() else 0.0


def _limit(dtype: torch.dtype) -> float:
    """The largest finite value of the type; fp64's for one that is not of floating point."""
    real = dtype.is_floating_point or dtype.is_complex
    return float(torch.finfo(dtype if real else torch.float64).max)


def _same_kind(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    """Where both are NaN, or both the same infinity."""
    return (left.isnan() & right.isnan()) | (left.isinf() & (left == right))
