"""Whether a candidate computes what eager computes, and how far from it, tensor by tensor.

Two rules, chosen by ``--parity``:

scaled (default)
    Errors are measured against an fp64 run of the same step and limited by
    each tensor's *own* size. With e = RMSE(eager, fp64), c = RMSE(candidate,
    fp64) and s = RMS(fp64), a tensor passes when

        c <= m * e + max(tol / 10, unit) * s      and
        max|candidate - fp64| <= 10 * max|eager - fp64| + max(tol, unit) * max|fp64|

    ``unit`` is the machine epsilon of the lowest precision in use; m = 2, or 3
    in reduced precision and for tensors under 1,000 elements, whose e is at
    least the usual one: e / s has the median of the larger tensors of its kind
    (outputs and loss; gradients; buffers), for one number can be right by chance.

    Both limits hold again for the elements that remain when those over 1,000
    times the median are left out, and a twentieth of a tensor's blocks (1,024
    elements each) at most may be beyond twice the first limit by their own e
    and s: neither large values nor a large neighbour hide an error.

    *Cancellation.* A sum that nearly cancels (a bias before a normalisation, a
    key's bias) depends on the order of its terms, and a compiler's order may be
    many times worse than eager's. So c may be up to 30 * e as long as it is
    under ``noise`` = max(1e-4, unit) times the largest s of its kind; and where
    the limit is s or more, eager carries no correct digit, and ``noise`` is
    allowed whatever e is (ten times as much, in both cases, for one element).
    Every tensor on which zeros would pass is named in ``noise_tensors``, and so
    is one of which eager lost more than half to overflow.

    Integers and booleans: e and c are the shares of elements that are not
    fp64's, s = 1, and c <= m * e + unit. Infinities and NaN must be eager's,
    except where fp64 shows that eager overflowed.

    Eager is run twice: m times the distance of the two runs is added, and
    where they differ by more than the tolerance nothing can be said. Without a
    usable fp64 run (it failed, or its outputs are not eager's to within half
    their size, 5 % in full precision: a model that draws random numbers draws
    others in fp64) eager is the truth, max(tol, 16 * unit) the floor, and
    ``noise`` allowed to every tensor.

    *Kinks.* Where a rounding moves a value across a step of the model (a ReLU's
    zero, a maximum's tie), its gradient is as far from fp64 as a wrong one. So a
    training candidate that fails in full precision is judged again beside eager
    runs whose weights were changed in their last digits; a tensor that only so
    passes is named in ``sensitive_tensors``: see ``harness.sensitivity``.

    Not covered: a candidate that draws other random numbers than eager fails,
    for want of a truth.

field
    The published rule of PyTorch's own harness: pass if ``allclose(atol=tol,
    rtol=tol)`` with eager, else if c <= m * e + tol / 10, both absolute.
    It accepts any gradient whose values are all below tol; it is offered for
    comparison with published numbers.

tol is 1e-3 in inference and 1e-2 in training.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch

from harness.distance import (
    BLOCK,
    Blocks,
    Distance,
    align,
    bulk,
    is_exact_kind,
    measure,
    peak,
    rms,
    wide,
)
from harness.reference import SMALL, Family, Reference, Rule, Tensors, family_of
from harness.schema import Parity, TensorError

MAX_MULTIPLIER = 10.0
CANCELLATION = 30.0  # inductor's sums came out up to 26 times further off than eager's
BAD_BLOCKS = 0.05
FIELD_COSINE = 0.99  # the published fallback where no fp64 run can be made


Shaken = Callable[[], Sequence[Reference]]
"""Makes the eager runs of ``harness.sensitivity``; asked only where a tensor fails."""


def compare(reference: Reference, candidate: Tensors, shaken: Shaken = tuple) -> Parity:
    """Compares every tensor of the eager run with the candidate's. See the module for the rule.

    A tensor that fails passes after all if it would beside one of the ``shaken``: see
    ``harness.sensitivity``.
    """
    errors = []
    noise = []
    sensitive = []
    for name in dict.fromkeys((*reference.eager, *candidate)):
        error, is_noise = _compare_one(name, reference, candidate)
        for other in shaken() if error.failure is not None else ():
            again, _ = _compare_one(name, other, candidate)
            if again.failure is None:
                error = again
                sensitive.append(name)
                break
        errors.append(error)
        if is_noise:
            noise.append(name)
    worst = max(errors, key=_badness, default=None)
    rule = reference.rule
    known = worst is not None and worst.name in reference.eager
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
    )


def resembles(found: Parity) -> bool:
    """Whether even the worst tensor has an error smaller than what it stands for: no NaN, none missing."""
    return found.worst is None or 0.0 < found.worst.candidate_rmse < found.worst.scale


def compare_both(reference: Reference, first: Tensors, settled: Tensors, shaken: Shaken = tuple) -> Parity:
    """The worse verdict on a candidate's first call and its settled one, mostly equal to the bit."""
    found = compare(reference, settled, shaken)
    return found if equal(first, settled) else worse(compare(reference, first, shaken), found)


def equal(first: Tensors, second: Tensors) -> bool:
    """Whether both runs gave the same tensors to the bit."""
    if first.keys() != second.keys():
        return False
    pairs = ((tensor, second[name]) for name, tensor in first.items())
    # NaN is unequal to itself, and other layouts than dense ones have no such test: compared in full then
    return all(a.dtype == b.dtype and _dense(a) and _dense(b) and torch.equal(a, b) for a, b in pairs)


def _dense(tensor: torch.Tensor) -> bool:
    return tensor.layout is torch.strided


def worse(first: Parity, second: Parity) -> Parity:
    """Of two checks of the same candidate (first call, settled call), the one to report."""
    if (second.failed > 0) != (first.failed > 0):
        return second if second.failed else first
    keys = [(p.failed, _badness(p.worst) if p.worst else 0.0) for p in (first, second)]
    return second if keys[1] > keys[0] else first


# -- one tensor ---------------------------------------------------------------


def _compare_one(name: str, reference: Reference, candidate: Tensors) -> tuple[TensorError, bool]:
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


def _wrong_form(eager: torch.Tensor, given: torch.Tensor) -> str | None:
    if given.shape != eager.shape:
        return f"shape {tuple(given.shape)} instead of {tuple(eager.shape)}"
    if given.dtype != eager.dtype:
        return f"dtype {given.dtype} instead of {eager.dtype}"
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The scaled rule's limits for one tensor, as the module states them."""

    rule: Rule
    multiplier: float
    has_exact: bool
    is_small: bool
    spread: float
    family: Family

    @classmethod
    def for_tensor(cls, name: str, reference: Reference) -> Limits:
        eager = reference.eager[name]
        return cls(
            rule=reference.rule,
            multiplier=reference.rule.multiplier(eager),
            has_exact=reference.exact_of(name) is not None,
            is_small=eager.numel() < SMALL,
            spread=reference.spread[name],
            family=reference.families[family_of(name)],
        )

    def of(self, found: Distance) -> tuple[float, float]:
        """The largest RMSE and the largest error of one element that pass."""
        e = max(found.eager_rmse, self.family.level * found.scale) if self.is_small else found.eager_rmse
        floor = self.rule.floor(exact=self.has_exact)
        usual = self.multiplier * (e + self.spread) + floor * found.scale
        noise = self.rule.noise * self.family.scale
        carries_digits = self.has_exact and usual < found.scale
        extra = min(CANCELLATION * found.eager_rmse, noise) if carries_digits else noise
        tolerance = max(self.rule.tolerance, self.rule.unit if self.has_exact else floor)
        most = MAX_MULTIPLIER * (max(found.eager_max, e) + self.spread) + tolerance * found.peak
        return (usual, most) if extra <= usual else (extra, max(most, MAX_MULTIPLIER * extra))

    def beyond(self, blocks: Blocks) -> torch.Tensor:
        """Which blocks are beyond twice the limit that their own figures give."""
        floor = self.rule.floor(exact=self.has_exact)
        usual = 2 * (self.multiplier * (blocks.eager + self.spread) + floor * blocks.scale)
        noise = torch.full_like(usual, self.rule.noise * self.family.scale)
        carries_digits = (usual < blocks.scale) & self.has_exact
        extra = torch.where(carries_digits, torch.minimum(CANCELLATION * blocks.eager, noise), noise)
        return blocks.candidate > torch.maximum(usual, extra)


def _judge_scaled(blank: TensorError, reference: Reference, given: torch.Tensor) -> tuple[TensorError, bool]:
    eager = reference.eager[blank.name]
    sides = align(reference.exact_of(blank.name), eager, given, reduced=reference.rule.reduced)
    if isinstance(sides, str):
        return replace(blank, scale=rms(eager), failure=sides), False
    limits = Limits.for_tensor(blank.name, reference)
    found, blocks = measure(sides, reference.known.get(blank.name))
    allowed, allowed_max = limits.of(found)
    passes_zeros = allowed >= found.scale and (found.scale > 0.0 or found.eager_rmse > 0.0)
    error = _judge(blank, found, allowed, allowed_max)
    if error.failure is None:
        error = _judge_parts(error, bulk(sides, found.peak), blocks, limits)
    return error, passes_zeros or 2 * sides.blind > eager.numel()


def _judge_parts(whole: TensorError, rest: Distance | None, blocks: Blocks, limits: Limits) -> TensorError:
    """What large values or a large neighbour would hide in the figures of the whole.

    ``rest`` is of what is left without outliers, if there are any.
    """
    if rest is not None:
        error = _judge(whole, rest, *limits.of(rest))
        if error.failure is not None:
            return replace(error, failure=f"outliers left out, {error.failure}")
    beyond = limits.beyond(blocks)
    count = int(beyond.sum())
    if count > max(1.0, BAD_BLOCKS * beyond.numel()):
        failure = f"{count} of {beyond.numel()} blocks of {BLOCK} elements are beyond their limit"
        return replace(whole, failure=failure)
    return whole


def _judge(blank: TensorError, found: Distance, allowed: float, allowed_max: float) -> TensorError:
    error = _fill(blank, found, allowed, allowed_max)
    # written so that a figure that is not a number fails
    if not found.candidate_rmse <= allowed:
        return replace(error, failure=_above("RMS error", found.candidate_rmse, allowed))
    if not found.candidate_max <= allowed_max:
        return replace(error, failure=_above("largest error", found.candidate_max, allowed_max))
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
    )


def _missing(name: str, eager: torch.Tensor | None, given: torch.Tensor | None) -> TensorError:
    """One side has no such tensor. No gradient and a gradient of zeros are the same."""
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
        failure=None if harmless else f"{side} gave no such tensor",
    )


def _badness(error: TensorError) -> float:
    """How close to its limit: 1 is at it. Failures always come first."""
    used = max(_ratio(error.candidate_rmse, error.allowed), _ratio(error.candidate_max, error.allowed_max))
    return used + (1e6 if error.failure else 0.0)


def _ratio(part: float, whole: float) -> float:
    if part == 0.0:
        return 0.0
    return part / whole if whole > 0.0 else float("inf")
