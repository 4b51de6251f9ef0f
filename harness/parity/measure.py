"""Errors of a tensor against the truth. All sums are computed in fp64."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import partial

import torch

from harness.devices import of

ROW = 64  # elements of a part of an output: about one token's results, or fewer
BLOCK = 1024  # elements of a part of another tensor, in which a kink moves a whole row
WHOLE, WHOLE_OUTPUT = 32 * BLOCK, 1024 * BLOCK  # elements: of a larger tensor, a sketch is kept
CHUNK = 256 * BLOCK  # elements: the fp64 copy fits into the cache and has work for a few threads
CHUNK_ELSEWHERE = 1 << 25  # elements: on a GPU every chunk costs several kernel launches

PLAIN = (torch.float64, torch.float32, torch.bfloat16, torch.float16)


def family_of(name: str) -> str:
    """The kind of a tensor: value (output or loss), gradient, buffer, parameter or input."""
    kind = name.split("@", 1)[0].split(".", 1)[0]  # output@1: of a smaller batch
    return {"output": "value", "loss": "value", "input_gradient": "gradient"}.get(kind, kind)


def is_exact_kind(tensor: torch.Tensor) -> bool:
    """Whether it holds integers or booleans: its error is the share of elements that differ."""
    return not (tensor.is_floating_point() or tensor.is_complex())


def same_bits(left: torch.Tensor, right: torch.Tensor) -> bool:
    """Equal in shape, type and every value, with NaN equal to NaN."""
    if left.shape != right.shape or left.dtype != right.dtype or left.device != right.device:
        return False
    if left is right or torch.equal(left, right):
        return True
    return bool(((left == right) | (left.isnan() & right.isnan())).all())


def flat(tensor: torch.Tensor) -> torch.Tensor:
    """The values, flat: ``PLAIN`` types unchanged, others in fp64, complex as real and imaginary parts."""
    plain = tensor.detach()
    if plain.is_complex():
        plain = torch.view_as_real(plain.to(torch.complex128).resolve_conj())
    return plain.flatten() if plain.dtype in PLAIN else plain.to(torch.float64).flatten()


def sketch(name: str, tensor: torch.Tensor) -> torch.Tensor:
    """A copy that is kept: a small tensor as it is; of a large one (flat) blocks, and sums of all parts.

    The blocks are random and always the same, and the last elements. A part's sum has random signs, divided
    by the root of its elements, so its error has the size of the part's RMS error: damage anywhere is seen.
    """
    kept = whole_of(name)
    if tensor.numel() <= kept:
        return tensor.detach().clone()
    values = tensor.detach().flatten()
    generator = torch.Generator().manual_seed(values.numel())
    # on the host, whatever default device a model's code has set
    drawn = partial(torch.randint, generator=generator, device="cpu")
    places = drawn(values.numel() // BLOCK, (kept // BLOCK - 1,)).tolist()
    starts = [*(BLOCK * place for place in places), values.numel() - BLOCK]
    blocks = torch.cat([values[start : start + BLOCK] for start in starts])
    if is_exact_kind(tensor) or tensor.dtype not in PLAIN:
        return blocks
    part = part_of(name)
    wide = torch.float64 if tensor.dtype is torch.float64 else torch.float32
    signs = (drawn(2, (part,)) * 2 - 1).to(values.device, wide)
    whole = values[: values.numel() // part * part].view(-1, part).to(wide)
    return torch.cat([blocks.to(wide), whole @ signs / math.sqrt(part)])


def whole_of(name: str) -> int:
    """The elements up to which this tensor is kept as it is."""
    return WHOLE_OUTPUT if family_of(name) == "value" else WHOLE


def part_of(name: str) -> int:
    """The elements of a part of this tensor."""
    return ROW if family_of(name) == "value" else BLOCK


def digest(tensor: torch.Tensor) -> tuple[int, ...]:
    """Sums over all bits of a tensor: a changed value, or two values in each other's place, changes them."""
    bits = flat(tensor).contiguous()
    size = {8: torch.int64, 4: torch.int32, 2: torch.int16}[bits.element_size()]
    numbers = bits.view(size)
    parts = torch.split(numbers, 1 << 22)
    rows = [_sums(part) for part in parts if part.numel()]
    by_part = sum(place * total for place, (total, _) in enumerate(rows))
    return numbers.numel(), sum(total for total, _ in rows), by_part, sum(ordered for _, ordered in rows)


def _sums(numbers: torch.Tensor) -> tuple[int, int]:
    """The sum of the numbers, and that of their running sums, which the order changes, too."""
    running = numbers.cumsum(0, dtype=torch.int64)
    return int(running[-1]), int(running.sum())


@dataclass(frozen=True, slots=True, kw_only=True)
class Error:
    """Of one tensor at one call, in the tensor's own unit; ``slope`` is a ratio.

    ``size``: RMS of the error; for integers the share that differ. ``part``: RMS of the error in the worst
    part. ``slope``: <error, truth> / <truth, truth>, the part of the error that only scales the truth:
    roundings cancel in it, and a wrong factor does not.
    """

    size: float = 0.0
    part: float = 0.0
    slope: float = 0.0

    def of(self, figure: str) -> float:
        """The absolute value of one figure, by its name."""
        return abs(float(getattr(self, figure)))

    def over(self, scale: float) -> Error:
        """Relative to this size; unchanged for a tensor of zeros."""
        return replace(self, size=self.size / (scale or 1.0), part=self.part / (scale or 1.0))


EXACT = Error()


@dataclass(frozen=True, slots=True, kw_only=True)
class Sides:
    """The comparable values of truth and another run: flat, finite, of the same length.

    ``blind`` counts the elements left out because eager overflowed.
    """

    truth: torch.Tensor
    other: torch.Tensor
    blind: int = 0

    @property
    def scale(self) -> float:
        return scale_of(self.truth)


def align(
    exact: torch.Tensor | None, eager: torch.Tensor, other: torch.Tensor, *, reduced: bool
) -> Sides | str:
    """The comparable elements, or a sentence on infinite or NaN values that are wrong.

    - If eager is finite, the other must be finite. If fp64 is not finite in the eager type (a mask of the
      type's lowest number is another number in fp64), eager is the truth.
    - If eager and fp64 are the same infinity, or both NaN, the other must be the same.
    - All other elements have overflowed in eager and are not compared.
    """
    ours = flat(eager)
    theirs = ours if other is eager else flat(other)
    meant = ours if exact is None else flat(exact)
    if all(_largest(side) <= _limit(eager.dtype) for side in (meant, ours, theirs) if side.numel()):
        return Sides(truth=meant, other=theirs)
    ours, theirs, meant = (side.to(torch.float64) for side in (ours, theirs, meant))
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
        truth=torch.where(fine[0], truth, ours)[judged], other=theirs[judged], blind=int(blind.sum())
    )


def scale_of(truth: torch.Tensor) -> float:
    """The RMS of a tensor; 1 for integers, whose errors are shares."""
    return 1.0 if is_exact_kind(truth) else _measure(flat(truth), None, BLOCK).size


def error_of(name: str, truth: torch.Tensor, other: torch.Tensor) -> Error:
    """The error of flat, finite values of what ``sketch`` keeps; of integers the share that differs.

    Of the sketch of a large tensor, the blocks and the sums are two estimates of its size, and the larger one
    counts; each sum stands for a part.
    """
    if other is truth:
        return EXACT
    if is_exact_kind(other):
        share = float((other != truth).double().mean())
        return Error(size=share, part=share)
    part, kept = part_of(name), whole_of(name)
    whole = _measure(other, truth, part)
    if truth.numel() <= kept:
        return whole
    blocks = _measure(other[:kept], truth[:kept], part)
    sums = _measure(other[kept:], truth[kept:], 1)
    return replace(whole, size=max(blocks.size, sums.size), part=max(blocks.part, sums.part))


def _measure(values: torch.Tensor, less: torch.Tensor | None, part: int) -> Error:
    """Of ``values - less``.

    It works in chunks with one small buffer: the allocation of whole fp64 copies would take many times as
    long as the arithmetic.
    """
    count = values.numel()
    if count == 0:
        return EXACT
    size = min(count, CHUNK_ELSEWHERE if of(values.device).accelerated else CHUNK)
    buffer = values.new_empty(size, dtype=torch.float64)
    sums = values.new_zeros(3, dtype=torch.float64)  # of squares of the error, products, squares of the truth
    worst = [values.new_zeros((), dtype=torch.float64)]
    for start in range(0, count, size):
        rest = buffer[: min(size, count - start)].copy_(values[start : start + size])
        if less is not None:
            truth = less[start : start + size].to(torch.float64)
            rest.sub_(truth)
            sums[1] += torch.dot(rest, truth)
            sums[2] += torch.dot(truth, truth)
        sums[0] += torch.dot(rest, rest)
        if rest.numel() >= part:
            whole = rest[: rest.numel() // part * part].view(-1, part)
            worst.append(torch.linalg.vector_norm(whole, dim=1).max() / math.sqrt(part))
    squares, along, of_truth = sums.tolist()
    rms = math.sqrt(squares / count)
    return Error(
        size=rms,
        part=float(torch.stack(worst).max()) if len(worst) > 1 else rms,
        slope=along / of_truth if of_truth > 0.0 else 0.0,
    )


def _largest(values: torch.Tensor) -> float:
    """The largest absolute value, NaN if there is a NaN. Much faster than ``isfinite`` and ``abs``."""
    low, high = torch.aminmax(values)
    return float(torch.maximum(-low, high))


def _limit(dtype: torch.dtype) -> float:
    """The largest finite value of the type; fp64's for integers and booleans."""
    real = dtype.is_floating_point or dtype.is_complex
    return float(torch.finfo(dtype if real else torch.float64).max)


def _same_kind(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    """Where both are NaN, or both the same infinity."""
    return (left.isnan() & right.isnan()) | (left.isinf() & (left == right))
