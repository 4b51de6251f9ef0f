"""The rules of parity: whether a candidate computes what eager computes, tensor by tensor.

Two rules, chosen by ``--parity``:

scaled (default)
    Errors are measured against an fp64 run of the same step and limited by
    each tensor's *own* size. With e = RMSE(eager, fp64), c = RMSE(candidate,
    fp64) and s = RMS(fp64), a tensor passes when

        c <= m * e + max(tol / 10, unit) * s      and
        max|candidate - fp64| <= 10 * max|eager - fp64| + max(tol, unit) * max|fp64|

    ``unit`` is the machine epsilon of the lowest precision in use. m = 2, or 3 in reduced precision and
    for tensors under 1,000 elements. One number can be exact by chance, so such a small tensor's e / s is
    at least the median of the larger tensors of its kind (outputs and loss; gradients; buffers).

    Both limits must also hold without the outliers (elements above 1,000 times the median). And at most a
    twentieth of a tensor's blocks (1,024 elements each) may exceed twice the first limit, computed with
    the block's own e and s. So neither outliers nor larger parts of the tensor hide an error.

    *Rows.* Each 64 consecutive elements of an output are a row. With E the error of eager's worst row, no
    row may be further off than k * q * (E + unit / 4 * s), where k is 30, or 3 in reduced precision, and q
    is the ratio of the lower quartiles of the candidate's and eager's rows, at least 1. So a compiler whose
    errors are larger everywhere (another algorithm) is judged by the limits above, and an error in one place
    far below them is found.

    *Slope.* The projection of the error on the truth, <c - x, x> / <x, x>, shows a wrong factor far below the
    limit of the RMS error, because roundings cancel in it. In a tensor of 1,000 elements it may be up to
    2 * eager's slope + (1/4 + 10 * e/s + 5 / sqrt(elements)) * e/s + max(tol / 20, unit / 4).

    *Cancellation.* A sum that nearly cancels (the gradient of a bias before a normalization) depends on
    the order of its terms, and a compiler's order may be many times worse than eager's. So c may be up to
    30 * e if it is at most ``noise`` = max(1e-4, unit) times the largest s of its kind. If the limit is s
    or more, eager carries no correct digit, and c may be up to ``noise`` whatever e is. If s is zero (at most
    1e-6 * e), the sum cancels exactly, and c may be up to the larger of both. In all three cases the limit
    of a single element is ten times as large. ``noise_tensors`` names every tensor on which zeros
    would pass, and every tensor of which eager lost more than half to overflow.

    Integers and booleans: e and c are the shares of elements that differ from fp64, s = 1, and the limit
    is c <= m * e + unit. Infinities and NaN must equal eager's, unless fp64 shows that eager overflowed.

    Eager runs twice: m times the distance of the two runs is added to the limit. If they differ by more
    than the tolerance, no candidate can be judged. A run in fp64 is not usable if it fails, or if its
    outputs differ from eager's by more than half their size (5 % in full precision): a model that draws
    random numbers draws others in fp64. Then eager is the truth, the floor is max(tol, 16 * unit), and
    ``noise`` is permitted for every tensor.

    *Kinks and amplified roundings.* If a rounding moves a value across a kink of the model (a ReLU's zero, a
    tie of a maximum), its gradient is as far from fp64 as a wrong gradient. If a model amplifies roundings,
    the error of one run of eager says little about the error of another order of the same sums. So a
    candidate that fails in full precision is judged again at perturbed weights. ``sensitive_tensors`` names
    the tensors that pass only there: see ``harness.parity.sensitivity``.

    *Random numbers.* If eager draws random numbers, and another seed changes all failing tensors in
    eager, the candidate cannot be judged: see ``harness.parity.chance``.

field
    The published rule of PyTorch's own harness: pass if ``allclose(atol=tol,
    rtol=tol)`` with eager, else if c <= m * e + tol / 10, both absolute.
    It accepts any gradient whose values are all below tol. Use it to compare with published numbers.

tol is 1e-3 in inference and 1e-2 in training; with the scaled rule, outputs and loss of a training step have
1e-3, too. If a failure in full precision has the errors of a lower one, ``lower_precision`` names it.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

import torch

from harness.parity.distance import (
    BLOCK,
    ROW,
    Blocks,
    Distance,
    align,
    bulk,
    is_exact_kind,
    measure,
    peak,
    rms,
    same_bits,
    wide,
)
from harness.parity.limits import Limits
from harness.parity.parts.lower import lower_precision
from harness.parity.reference import Reference, Tensors, family_of
from harness.schema import Parity, TensorError

DOUBTFUL = 3.0  # multiple of a limit
FIELD_COSINE = 0.99  # the published fallback without an fp64 run


Perturbed = Callable[[], Sequence[Reference]]
"""Makes the eager runs with perturbed weights; called only if a tensor fails."""

NONE: Mapping[str, TensorError] = {}


def compare(
    reference: Reference,
    candidate: Tensors,
    perturbed: Perturbed = tuple,
    *,
    excused: Mapping[str, TensorError] = NONE,
) -> Parity:
    """Compares every tensor of the eager run with the candidate's. The module's docstring states the rule.

    A failing tensor passes if it passes in comparison with one of the ``perturbed`` runs, or with the figures
    that ``excused`` has for it: see ``harness.parity.sensitivity``.
    """
    errors = []
    noise = []
    sensitive = []
    for name in dict.fromkeys((*reference.eager, *candidate)):
        error, is_noise = compare_one(name, reference, candidate)
        for again in _again(name, error, candidate, perturbed, excused):
            if again.failure is None:
                error = again
                sensitive.append(name)
                is_noise = is_noise or error.allowed >= error.scale > 0.0
                break
        errors.append(error)
        if is_noise:
            noise.append(name)
    worst = max(errors, key=_badness, default=None)
    rule = reference.rule
    known = worst is not None and worst.name in reference.eager
    blind = {*noise, *(name for name, tensor in reference.eager.items() if is_exact_kind(tensor))}
    median, largest = _resolution(error for error in errors if error.name not in blind)
    return Parity(
        rule=rule.name,
        reference="fp64" if reference.exact is not None else "eager",
        tolerance=rule.tolerance,
        multiplier=rule.multiplier(reference.eager[worst.name]) if worst is not None and known else 2.0,
        tensors=len(errors),
        failed=sum(error.failure is not None for error in errors),
        worst=worst,
        eager_bit_equal=reference.bit_equal,
        eager_spread=reference.relative_spread,
        noise_tensors=tuple(noise),
        sensitive_tensors=tuple(sensitive),
        resolution_median=median,
        resolution_largest=largest,
        lower_precision=lower_precision([error for error in errors if error.name not in blind], rule),
    )


def _again(
    name: str,
    error: TensorError,
    candidate: Tensors,
    perturbed: Perturbed,
    excused: Mapping[str, TensorError],
) -> Iterator[TensorError]:
    """The other results of a tensor that fails."""
    if error.failure is not None:
        yield from (compare_one(name, other, candidate)[0] for other in perturbed())
        yield from (found for found in (excused.get(name),) if found is not None)


def _resolution(errors: Iterable[TensorError]) -> tuple[float | None, float | None]:
    """Median and largest of the permitted RMS errors, each relative to the size of its tensor."""
    shares = [error.allowed / error.scale for error in errors if error.scale > 0.0 and error.allowed > 0.0]
    return (statistics.median(shares), max(shares)) if shares else (None, None)


def failing(reference: Reference, candidate: Tensors) -> tuple[str, ...]:
    """The names of all tensors that fail."""
    names = dict.fromkeys((*reference.eager, *candidate))
    return tuple(n for n in names if compare_one(n, reference, candidate)[0].failure is not None)


def resembles(found: Parity) -> bool:
    """Whether even the worst tensor has an error smaller than its size: no NaN, no missing tensor."""
    return found.worst is None or 0.0 < found.worst.candidate_rmse < found.worst.scale


def is_doubtful(found: Parity) -> bool:
    """Whether even the worst tensor is only a few times its limit, and less than its size, from the truth.

    Where eager's results are mostly rounding noise, such a failure shows nothing.
    """
    worst = found.worst
    if worst is None or not resembles(found):
        return False
    used = max(_ratio(worst.candidate_rmse, worst.allowed), _ratio(worst.candidate_max, worst.allowed_max))
    return used <= DOUBTFUL


def compare_both(
    reference: Reference,
    first: Tensors,
    settled: Tensors,
    *,
    excused: Mapping[str, TensorError] = NONE,
) -> Parity:
    """The worse result of a candidate's first call and its settled call, which are mostly bit-equal.

    The settled call is the third in a row. Tensors that ``settled`` lacks are not compared there.
    """
    found = compare(reference, first, excused=excused)
    if equal(first, settled):
        return found
    return worse(found, compare(reference.of(settled), settled, excused=excused))


def equal(first: Tensors, second: Tensors) -> bool:
    """Whether both runs have the same dense tensors, bit by bit."""
    if first.keys() != second.keys():
        return False
    pairs = ((tensor, second[name]) for name, tensor in first.items())
    # False for NaN (unequal to itself) and for sparse tensors (no torch.equal): they are compared in full
    return all(
        (a.dtype, a.device) == (b.dtype, b.device) and _dense(a) and _dense(b) and torch.equal(a, b)
        for a, b in pairs
    )


def _dense(tensor: torch.Tensor) -> bool:
    return tensor.layout is torch.strided


def worse(first: Parity, second: Parity) -> Parity:
    """The worse of two checks of the same candidate (first call, settled call), which is reported."""
    if (second.failed > 0) != (first.failed > 0):
        return second if second.failed else first
    keys = [(p.failed, _badness(p.worst) if p.worst else 0.0) for p in (first, second)]
    return second if keys[1] > keys[0] else first


# -- one tensor ---------------------------------------------------------------


def compare_one(name: str, reference: Reference, candidate: Tensors) -> tuple[TensorError, bool]:
    """The error of one tensor, and whether it is a noise tensor."""
    eager, given = reference.eager.get(name), candidate.get(name)
    if eager is None or given is None:
        return _missing(name, eager, given), False
    failure = _wrong_form(eager, given)
    if failure is not None or eager.numel() == 0:
        return replace(_blank(name, eager), scale=rms(eager), failure=failure), False
    blank = _blank(name, eager)
    if reference.rule.name == "field":
        return _judge_field(blank, reference, given), False
    if is_exact_kind(eager):
        return _judge_exact_kind(blank, reference, given), False
    return _judge_scaled(blank, reference, given)


def parts_of(name: str, reference: Reference, candidate: Tensors) -> tuple[Limits, Distance, Blocks] | None:
    """A tensor's limits, and what they judge its rows and blocks by; None where these are not judged."""
    eager, given = reference.eager.get(name), candidate.get(name)
    if eager is None or given is None or is_exact_kind(eager) or _wrong_form(eager, given):
        return None
    sides = align(reference.exact_of(name), eager, given, reduced=reference.rule.reduced)
    if isinstance(sides, str):
        return None
    return Limits.for_tensor(name, reference), *measure(sides, reference.known.get(name))


def _wrong_form(eager: torch.Tensor, given: torch.Tensor) -> str | None:
    if given.shape != eager.shape:
        return f"shape {tuple(given.shape)} instead of {tuple(eager.shape)}"
    if given.dtype != eager.dtype:
        return f"dtype {given.dtype} instead of {eager.dtype}"
    if given.device != eager.device:
        return f"on the device {given.device} instead of {eager.device}"
    return None


def _judge_scaled(blank: TensorError, reference: Reference, given: torch.Tensor) -> tuple[TensorError, bool]:
    eager = reference.eager[blank.name]
    given = eager if same_bits(eager, given) else given  # its sums are known
    sides = align(reference.exact_of(blank.name), eager, given, reduced=reference.rule.reduced)
    if isinstance(sides, str):
        return replace(blank, scale=rms(eager), failure=sides), False
    limits = Limits.for_tensor(blank.name, reference)
    found, blocks = measure(sides, reference.known.get(blank.name))
    allowed, allowed_max = limits.of(found)
    blank = replace(blank, allowed_slope=limits.of_slope(found, sides.truth.numel()))
    passes_zeros = allowed >= found.scale and (found.scale > 0.0 or found.eager_rmse > 0.0)
    error = _judge(blank, found, allowed, allowed_max)
    if error.failure is None:
        error = _judge_parts(error, found, bulk(sides, found.peak), blocks, limits)
    return error, passes_zeros or 2 * sides.blind > eager.numel()


def _judge_parts(
    whole: TensorError, found: Distance, rest: Distance | None, blocks: Blocks, limits: Limits
) -> TensorError:
    """Judges the tensor without outliers (``rest``; None without outliers), by rows and by blocks.

    Outliers or larger parts of the tensor would hide an error in the figures of the whole.
    """
    if rest is not None:
        slope = limits.of_slope(rest, whole.numel)
        error = _judge(replace(whole, allowed_slope=slope), rest, *limits.of(rest))
        if error.failure is not None:
            return replace(error, failure=f"without outliers, {error.failure}")
    row = limits.of_row(found, blocks)
    if row is not None and not row[0] <= row[1]:
        return replace(whole, failure=_above(f"RMS error of {ROW} elements in a row", *row))
    count = limits.too_many(blocks)
    if count:
        failure = f"{count} of {blocks.scale.numel()} blocks of {BLOCK} elements are beyond their limit"
        return replace(whole, failure=failure)
    return whole


def _judge(blank: TensorError, found: Distance, allowed: float, allowed_max: float) -> TensorError:
    error = _fill(blank, found, allowed, allowed_max)
    # "not <=" instead of ">", so that NaN fails
    if not found.candidate_rmse <= allowed:
        return replace(error, failure=_above("RMS error", found.candidate_rmse, allowed))
    if not found.candidate_max <= allowed_max:
        return replace(error, failure=_above("largest error", found.candidate_max, allowed_max))
    if error.allowed_slope is not None and not abs(found.candidate_slope) <= error.allowed_slope:
        return replace(
            error, failure=f"{_scaled(found.candidate_slope)}, above the limit {_share(error.allowed_slope)}"
        )
    return error


def _judge_exact_kind(blank: TensorError, reference: Reference, given: torch.Tensor) -> TensorError:
    eager, exact = reference.eager[blank.name], reference.exact_of(blank.name)
    found = Distance.shares(eager if exact is None else exact, eager, given)
    rule = reference.rule
    allowed = rule.multiplier(eager) * (found.eager_rmse + reference.spread[blank.name]) + rule.unit
    error = _fill(blank, found, allowed, allowed)
    if found.candidate_rmse <= allowed:
        return error
    count = round(found.candidate_rmse * blank.numel)
    return replace(error, failure=f"{count} of {blank.numel} values differ, above the limit {allowed:.3g}")


def _judge_field(blank: TensorError, reference: Reference, given: torch.Tensor) -> TensorError:
    rule, eager, exact = reference.rule, reference.eager[blank.name], reference.exact_of(blank.name)
    sides = align(exact, eager, given, reduced=rule.reduced)
    if isinstance(sides, str):
        return replace(blank, scale=rms(eager), failure=sides)
    found, _ = measure(sides, reference.known.get(blank.name))
    allowed = rule.multiplier(given) * found.eager_rmse + rule.tolerance / 10
    error = _fill(blank, found, allowed, rule.tolerance * (1 + found.peak))
    ours, theirs = wide(eager), wide(given)
    if torch.allclose(ours, theirs, atol=rule.tolerance, rtol=rule.tolerance, equal_nan=True):
        return error
    if exact is not None:
        passes = found.candidate_rmse <= allowed and sides.blind == 0
    else:
        passes = float(torch.nn.functional.cosine_similarity(ours, theirs, dim=0)) >= FIELD_COSINE
    if passes:
        return error
    return replace(error, failure=_above("RMS error", found.candidate_rmse, allowed))


def _above(what: str, value: float, limit: float) -> str:
    return f"{what} {value:.3g} is above the limit {limit:.3g}"


def _scaled(slope: float) -> str:
    return f"on the whole {_share(slope)} too {'large' if slope > 0 else 'small'}"


def _share(value: float) -> str:
    return f"{abs(value):.2%}"


def _blank(name: str, eager: torch.Tensor) -> TensorError:
    return TensorError(
        name=name,
        numel=eager.numel(),
        scale=0.0,
        eager_rmse=0.0,
        candidate_rmse=0.0,
        allowed=0.0,
        candidate_max=0.0,
        allowed_max=0.0,
    )


def _fill(blank: TensorError, found: Distance, allowed: float, allowed_max: float) -> TensorError:
    return replace(
        blank,
        scale=found.scale,
        eager_rmse=found.eager_rmse,
        candidate_rmse=found.candidate_rmse,
        allowed=allowed,
        candidate_max=found.candidate_max,
        allowed_max=allowed_max,
        slope=found.candidate_slope,
        eager_slope=found.eager_slope,
    )


def _missing(name: str, eager: torch.Tensor | None, given: torch.Tensor | None) -> TensorError:
    """The error of a tensor that only one side has. A missing gradient equals a gradient of zeros."""
    present = eager if eager is not None else given
    assert present is not None
    side = "the candidate" if given is None else "eager"
    size, largest = rms(present), peak(present)
    harmless = size == 0.0 and family_of(name) == "gradient"
    return replace(
        _blank(name, present),
        scale=size,
        candidate_rmse=size,
        candidate_max=largest,
        failure=None if harmless else f"{side} returned no such tensor",
    )


def _badness(error: TensorError) -> float:
    """Error / limit. Failures get a large constant on top, so that they come first."""
    used = max(_ratio(error.candidate_rmse, error.allowed), _ratio(error.candidate_max, error.allowed_max))
    return used + (1e6 if error.failure else 0.0)


def _ratio(part: float, whole: float) -> float:
    if part == 0.0:
        return 0.0
    return part / whole if whole > 0.0 else float("inf")
