"""Distances between tensors, which parity judges. All are computed in fp64."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from harness.devices import of

OUTLIER = 1000.0  # multiple of the median size: a larger element hides all others in an RMS
BLOCK = 1024  # elements: enough for a stable RMS, few enough to find a wrong part of a tensor
MEDIAN_SAMPLE = 1 << 16  # elements: they give the median to half a percent, and outliers are far from it
ROW = 64  # elements: about one token's results, or fewer
CHUNK = 256 * BLOCK  # elements: the fp64 copy fits into the cache and has work for a few threads
CHUNK_ELSEWHERE = 1 << 25  # elements: on a GPU every chunk costs several kernel launches

PLAIN = (torch.float64, torch.float32, torch.bfloat16, torch.float16)


def flat(tensor: torch.Tensor) -> torch.Tensor:
    """The values, flat: ``PLAIN`` types unchanged, others in fp64, complex as real and imaginary parts."""
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
    """Whether it holds integers or booleans, which must be equal."""
    return not (tensor.is_floating_point() or tensor.is_complex())


def same_bits(left: torch.Tensor, right: torch.Tensor) -> bool:
    """Equal in shape, type and every value, with NaN equal to NaN."""
    if left.shape != right.shape or left.dtype != right.dtype:
        return False
    if left is right or torch.equal(left, right):
        return True
    return bool(((left == right) | (left.isnan() & right.isnan())).all())


def rmse(left: torch.Tensor, right: torch.Tensor) -> float:
    """RMS of the difference; for integers the share of elements that differ.

    ``inf`` if one side has an infinity or NaN that the other side does not have there.
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
    """The comparable values of truth, eager and candidate: flat, finite, of the same length.

    ``blind`` counts the elements left out because eager overflowed.
    """

    truth: torch.Tensor
    eager: torch.Tensor
    candidate: torch.Tensor
    blind: int = 0


def align(
    exact: torch.Tensor | None, eager: torch.Tensor, candidate: torch.Tensor, *, reduced: bool
) -> Sides | str:
    """The comparable elements, or a sentence on infinite or NaN values that are wrong.

    - If eager is finite, the candidate must be finite. If fp64 is not finite in the eager type (a mask of
      the type's lowest number is another number in fp64), eager is the truth.
    - If eager and fp64 are the same infinity, or both NaN, the candidate must be the same.
    - All other elements have overflowed in eager and are not compared.
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
        return f"{int(owed.sum())} values are not the infinity or NaN that eager has there"
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
    """Distances of eager and candidate from the truth, and the size of the truth (all absolute).

    A slope is the projection of the error on the truth, <error, truth> / <truth, truth>: the part of the
    error that only scales the truth. Roundings cancel in it; a wrong factor does not.
    """

    scale: float
    peak: float
    eager_rmse: float
    eager_max: float
    candidate_rmse: float
    candidate_max: float
    eager_slope: float = 0.0
    candidate_slope: float = 0.0

    @classmethod
    def shares(cls, exact: torch.Tensor, eager: torch.Tensor, candidate: torch.Tensor) -> Distance:
        """For integers and booleans: the share of elements that differ from the truth (scale 1)."""
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
    """RMS of truth and of errors in each complete block of ``BLOCK`` elements (shape: blocks).

    ``eager_rows`` and ``candidate_rows``: RMS of the errors in each complete row of ``ROW`` elements.
    """

    scale: torch.Tensor
    eager: torch.Tensor
    candidate: torch.Tensor
    eager_rows: torch.Tensor
    candidate_rows: torch.Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """The sums that are the same for every candidate."""

    truth: _Sum
    eager: _Sum


def know(sides: Sides, most: float = math.inf) -> Known:
    """The sums of the elements whose truth is at most ``most``."""
    return Known(
        truth=_Sum.of(sides.truth, kept=sides.truth, most=most),
        eager=_Sum.of(sides.eager, sides.truth, sides.truth, most, project=True),
    )


def eager_alone(known: Known) -> Distance:
    """The distance of eager, as if it were the candidate."""
    return _distance(known.truth, known.eager, known.eager)


def measure(sides: Sides, known: Known | None = None, *, most: float = math.inf) -> tuple[Distance, Blocks]:
    """Distances of the whole and of its blocks, of the elements whose truth is at most ``most``."""
    known = known or know(sides, most)
    truth, eager = known.truth, known.eager
    same = sides.candidate is sides.eager
    candidate = eager if same else _Sum.of(sides.candidate, sides.truth, sides.truth, most, project=True)
    blocks = Blocks(
        scale=truth.blocks,
        eager=eager.blocks,
        candidate=candidate.blocks,
        eager_rows=eager.rows,
        candidate_rows=candidate.rows,
    )
    return _distance(truth, eager, candidate), blocks


def _distance(truth: _Sum, eager: _Sum, candidate: _Sum) -> Distance:
    squares = truth.squares
    return Distance(
        scale=truth.rms,
        peak=truth.peak,
        eager_rmse=eager.rms,
        eager_max=eager.peak,
        candidate_rmse=candidate.rms,
        candidate_max=candidate.peak,
        eager_slope=eager.along / squares if squares > 0.0 else 0.0,
        candidate_slope=candidate.along / squares if squares > 0.0 else 0.0,
    )


def bulk(sides: Sides, largest: float) -> Distance | None:
    """The distance without outliers; None if there are no outliers.

    ``largest`` is the largest absolute value of the truth.
    """
    # the step is odd: an even step might sample only a few of a matrix's columns
    sample = sides.truth[:: max(1, sides.truth.numel() // MEDIAN_SAMPLE) | 1].abs()
    sample = sample[sample > 0]
    if sample.numel() == 0:
        return None
    most = OUTLIER * float(sample.median())
    return None if largest <= most else measure(sides, most=most)[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sum:
    """RMS and largest size of a tensor's elements, and the RMS of each of its blocks, in fp64.

    ``squares`` is the sum of squares; ``along`` the inner product with what was subtracted; ``rows`` the RMS
    of each ``ROW`` elements.
    """

    rms: float
    peak: float
    blocks: torch.Tensor
    rows: torch.Tensor
    squares: float = 0.0
    along: float = 0.0

    @classmethod
    def of(
        cls,
        values: torch.Tensor,
        less: torch.Tensor | None = None,
        kept: torch.Tensor | None = None,
        most: float = math.inf,
        *,
        project: bool = False,
    ) -> _Sum:
        """Of ``values``, or of ``values - less``, where ``kept`` is at most ``most``.

        ``project``: with the inner product of ``values - less`` and ``less``, and with ``rows``.

        It works in chunks with one small buffer: the allocation of whole fp64 copies would take many times
        as long as the arithmetic.
        """
        count = values.numel()
        blocks = values.new_zeros(count // BLOCK, dtype=torch.float64)
        if less is values or count == 0:
            return cls(
                rms=0.0, peak=0.0, blocks=blocks, rows=values.new_zeros(count // ROW, dtype=torch.float64)
            )
        size = min(count, CHUNK_ELSEWHERE if of(values.device).accelerated else CHUNK)
        buffer = values.new_empty(size, dtype=torch.float64)
        rest, along = values.new_zeros((), dtype=torch.float64), values.new_zeros((), dtype=torch.float64)
        peaks, rows, left = [], [values.new_zeros(0, dtype=torch.float64)], count
        for start in range(0, count, size):
            part = buffer[: min(size, count - start)].copy_(values[start : start + size])
            if less is not None:
                part.sub_(less[start : start + size])
            if kept is not None and most < math.inf:
                out = kept[start : start + size].abs() > most
                part.masked_fill_(out, 0.0)
                left -= int(out.sum())
            if project and less is not None:
                along += torch.dot(part, less[start : start + size].to(torch.float64))
                rows.append(torch.linalg.vector_norm(part[: part.numel() // ROW * ROW].view(-1, ROW), dim=1))
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
            squares=squares,
            along=float(along),
            rows=torch.cat(rows) / math.sqrt(ROW),
        )


def _extremes(values: torch.Tensor) -> torch.Tensor:
    """The largest absolute value, NaN if there is a NaN. Much faster than ``isfinite`` and ``abs``."""
    low, high = torch.aminmax(values)
    return torch.maximum(-low, high)


def _largest(values: torch.Tensor) -> float:
    return float(_extremes(values)) if values.numel() else 0.0


def _limit(dtype: torch.dtype) -> float:
    """The largest finite value of the type; fp64's for integers and booleans."""
    real = dtype.is_floating_point or dtype.is_complex
    return float(torch.finfo(dtype if real else torch.float64).max)


def _same_kind(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    """Where both are NaN, or both the same infinity."""
    return (left.isnan() & right.isnan()) | (left.isinf() & (left == right))
