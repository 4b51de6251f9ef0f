"""Whether a candidate computes what eager computes, and how far from it, tensor by tensor.

Two rules, chosen by ``--parity``:

scaled (default)
    Errors are measured against an fp64 run of the same step and limited by
    each tensor's *own* size. With e = RMSE(eager, fp64), c = RMSE(candidate,
    fp64) and s = RMS(fp64), a tensor passes when

        c <= m * e + max(tol / 10, unit) * s      and
        max|candidate - fp64| <= 10 * max|eager - fp64| + max(tol, unit) * max|fp64|

    ``unit`` is the machine epsilon of the lowest precision in use; m = 2, or 3
    in reduced precision and for tensors under 1,000 elements. Where eager
    itself is further than s/2 from fp64 it carries no correct digit (a key
    bias's gradient is exactly zero in theory); such *noise tensors* may be off
    by one unit of the largest tensor of their kind, and are listed by name.
    Eager is run twice: if the two differ, m times their distance is added; if
    they differ by more than the tolerance, nothing can be said.

field
    The published rule of PyTorch's own harness: pass if ``allclose(atol=tol,
    rtol=tol)`` with eager, else if c <= m * e + tol / 10, both absolute.
    It accepts any gradient whose values are all below tol; it is offered for
    comparison with published numbers.

tol is 1e-3 in inference and 1e-2 in training.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch

from harness.precision import Precision
from harness.schema import Mode, Parity, TensorError

Tensors = Mapping[str, torch.Tensor]
SMALL = 1000  # elements: below, RMSE is itself uncertain and m is 3
MAX_MULTIPLIER = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    name: str  # "scaled" | "field"
    tolerance: float
    unit: float
    reduced: bool

    def multiplier(self, tensor: torch.Tensor) -> float:
        if self.name == "scaled":
            return 3.0 if self.reduced or tensor.numel() < SMALL else 2.0
        half = tensor.dtype in (torch.float16, torch.bfloat16)
        pointwise = tensor.ndim == 4 and tuple(tensor.shape[2:]) == (1, 1)
        loose = half or tensor.numel() < SMALL or pointwise or self.tolerance >= 2e-2
        return 3.0 if loose else 2.0


def rule_for(name: str, mode: Mode, precision: Precision) -> Rule:
    """The rule called ``name`` with the tolerance of the mode. ``ValueError`` for another name."""
    if name not in ("scaled", "field"):
        raise ValueError(f"there is no parity rule called {name!r}")
    tolerance = 1e-2 if mode is Mode.TRAINING else 1e-3
    return Rule(name=name, tolerance=tolerance, unit=precision.unit, reduced=precision.reduced)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """What candidates are held against: made once a job from the fp64 run and two eager runs."""

    exact: Tensors | None  # the fp64 run; None where it could not be made
    eager: Tensors
    spread: Mapping[str, float]  # RMSE between the two eager runs, by tensor
    bit_equal: bool

    def relative_spread(self) -> float:
        """The largest spread relative to its tensor's RMS."""
        scales = {name: _rms(tensor) for name, tensor in self.eager.items()}
        return max((_ratio(self.spread[name], scales[name]) for name in self.spread), default=0.0)


def make_reference(exact: Tensors | None, first: Tensors, second: Tensors) -> Reference:
    spread = {}
    bit_equal = first.keys() == second.keys()
    for name, tensor in first.items():
        other = second.get(name)
        if other is None or other.shape != tensor.shape or other.dtype != tensor.dtype:
            spread[name] = math.inf
            bit_equal = False
            continue
        same = torch.equal(torch.nan_to_num(tensor), torch.nan_to_num(other))
        bit_equal = bit_equal and same
        spread[name] = 0.0 if same else _rms(_wide(tensor) - _wide(other))
    return Reference(exact=exact, eager=first, spread=spread, bit_equal=bit_equal)


def can_judge(reference: Reference, rule: Rule) -> bool:
    """False when eager differs from itself too much for any candidate to be judged."""
    if rule.name == "field":
        return reference.bit_equal
    return reference.relative_spread() <= max(rule.tolerance, rule.unit)


def compare(reference: Reference, candidate: Tensors, rule: Rule) -> Parity:
    """Compares every tensor of the eager run with the candidate's. See the module for the rule."""
    families = _family_scales(reference)
    errors = []
    noise = []
    for name in dict.fromkeys((*reference.eager, *candidate)):
        error, is_noise = _compare_one(name, reference, candidate, rule, families)
        errors.append(error)
        if is_noise:
            noise.append(name)
    worst = max(errors, key=_badness, default=None)
    exact = reference.exact is not None
    return Parity(
        rule=rule.name,
        reference="fp64" if exact else "eager",
        tolerance=rule.tolerance,
        multiplier=rule.multiplier(reference.eager[worst.name])
        if worst is not None and worst.name in reference.eager
        else 2.0,
        tensors=len(errors),
        failed=sum(error.failure is not None for error in errors),
        worst=worst,
        eager_bit_equal=reference.bit_equal,
        eager_spread=reference.relative_spread(),
        noise_tensors=tuple(noise),
    )


def worse(first: Parity, second: Parity) -> Parity:
    """Of two checks of the same candidate (first call, settled call), the one to report."""
    if (second.failed > 0) != (first.failed > 0):
        return second if second.failed else first
    keys = [(p.failed, _badness(p.worst) if p.worst else 0.0) for p in (first, second)]
    return second if keys[1] > keys[0] else first


def _compare_one(
    name: str, reference: Reference, candidate: Tensors, rule: Rule, families: Mapping[str, float]
) -> tuple[TensorError, bool]:
    eager = reference.eager.get(name)
    given = candidate.get(name)
    if eager is None or given is None:
        return _missing(name, eager, given), False
    blank = _blank(name, eager)
    if given.shape != eager.shape:
        return replace(blank, failure=f"shape {tuple(given.shape)} instead of {tuple(eager.shape)}"), False
    if given.dtype != eager.dtype:
        return replace(blank, failure=f"dtype {given.dtype} instead of {eager.dtype}"), False
    if eager.numel() == 0:
        return blank, False
    exact = reference.exact.get(name) if reference.exact is not None else None
    truth = _wide(exact if exact is not None and exact.shape == eager.shape else eager)
    wide_eager, wide_given = _wide(eager), _wide(given)
    lost = ~torch.isfinite(wide_given) & torch.isfinite(wide_eager)
    if bool(lost.any()):
        return replace(blank, failure=f"{int(lost.sum())} values are not finite where eager's are"), False
    # what overflowed in eager, or is not finite on either side, says nothing about the candidate
    usable = torch.isfinite(wide_eager) & torch.isfinite(wide_given) & torch.isfinite(truth)
    distance = Distance.measure(truth[usable], wide_eager[usable], wide_given[usable])
    if rule.name == "field":
        return _judge_field(blank, distance, eager, given, rule, exact is not None), False
    spread = reference.spread.get(name, 0.0)
    return _judge_scaled(blank, distance, rule, spread, families[_family(name)], rule.multiplier(eager))


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
    def measure(cls, truth: torch.Tensor, eager: torch.Tensor, candidate: torch.Tensor) -> Distance:
        return cls(
            scale=_rms(truth),
            peak=_peak(truth),
            eager_rmse=_rms(eager - truth),
            eager_max=_peak(eager - truth),
            candidate_rmse=_rms(candidate - truth),
            candidate_max=_peak(candidate - truth),
        )

    def fill(self, blank: TensorError, allowed: float, allowed_max: float) -> TensorError:
        return replace(
            blank,
            scale=self.scale,
            eager_rmse=self.eager_rmse,
            candidate_rmse=self.candidate_rmse,
            allowed=allowed,
            candidate_max=self.candidate_max,
            allowed_max=allowed_max,
        )


def _blank(name: str, eager: torch.Tensor) -> TensorError:
    return TensorError(
        name=name,
        numel=eager.numel(),
        scale=_rms(eager),
        eager_rmse=0.0,
        candidate_rmse=0.0,
        allowed=0.0,
        candidate_max=0.0,
        allowed_max=0.0,
    )


def _judge_scaled(
    blank: TensorError, found: Distance, rule: Rule, spread: float, family_scale: float, multiplier: float
) -> tuple[TensorError, bool]:
    floor = max(rule.tolerance / 10, rule.unit)
    allowed = multiplier * (found.eager_rmse + spread) + floor * found.scale
    allowed_max = MAX_MULTIPLIER * (found.eager_max + spread) + max(rule.tolerance, rule.unit) * found.peak
    is_noise = found.eager_rmse > found.scale / 2 or found.scale == 0.0
    if is_noise:
        allowed = max(allowed, rule.unit * family_scale)
        allowed_max = max(allowed_max, MAX_MULTIPLIER * rule.unit * family_scale)
    error = found.fill(blank, allowed, allowed_max)
    if found.candidate_rmse > allowed:
        error = replace(error, failure=f"RMS error {found.candidate_rmse:.3g} is above the limit {allowed:.3g}")
    elif found.candidate_max > allowed_max:
        limit = f"{found.candidate_max:.3g} is above the limit {allowed_max:.3g}"
        error = replace(error, failure=f"largest error {limit}")
    return error, is_noise


def _judge_field(
    blank: TensorError,
    found: Distance,
    eager: torch.Tensor,
    given: torch.Tensor,
    rule: Rule,
    has_exact: bool,
) -> TensorError:
    tolerance = rule.tolerance
    allowed = rule.multiplier(given) * found.eager_rmse + tolerance / 10
    error = found.fill(blank, allowed, tolerance * (1 + found.peak))
    wide_eager, wide_given = _wide(eager), _wide(given)
    if torch.allclose(wide_eager, wide_given, atol=tolerance, rtol=tolerance, equal_nan=True):
        return error
    if has_exact:
        passes = found.candidate_rmse <= allowed
    else:  # the published fallback
        cosine = torch.nn.functional.cosine_similarity(wide_eager.flatten(), wide_given.flatten(), dim=0)
        passes = float(cosine) >= 0.99
    if passes:
        return error
    return replace(error, failure=f"RMS error {found.candidate_rmse:.3g} is above the limit {allowed:.3g}")


def _missing(name: str, eager: torch.Tensor | None, given: torch.Tensor | None) -> TensorError:
    """One side has no such tensor. No gradient and a gradient of zeros are the same."""
    present = eager if eager is not None else given
    assert present is not None
    side = "the candidate" if given is None else "eager"
    scale = _rms(present)
    failure = None if scale == 0.0 else f"{side} gave no such tensor"
    return TensorError(
        name=name,
        numel=present.numel(),
        scale=scale,
        eager_rmse=0.0,
        candidate_rmse=scale,
        allowed=0.0,
        candidate_max=_peak(_wide(present)),
        allowed_max=0.0,
        failure=failure,
    )


def _family(name: str) -> str:
    return name.split(".", 1)[0]


def _family_scales(reference: Reference) -> dict[str, float]:
    source = reference.exact if reference.exact is not None else reference.eager
    scales: dict[str, float] = {}
    for name, tensor in (*reference.eager.items(), *source.items()):
        family = _family(name)
        scale = _rms(tensor)
        scales[family] = max(scales.get(family, 0.0), scale if math.isfinite(scale) else 0.0)
    return scales


def _badness(error: TensorError) -> float:
    """How close to its limit: 1 is at it. Failures always come first."""
    used = max(_ratio(error.candidate_rmse, error.allowed), _ratio(error.candidate_max, error.allowed_max))
    return used + (1e6 if error.failure else 0.0)


def _ratio(part: float, whole: float) -> float:
    if part == 0.0:
        return 0.0
    return part / whole if whole > 0.0 else math.inf


def _wide(tensor: torch.Tensor) -> torch.Tensor:
    plain = tensor.detach()
    if plain.is_complex():
        return torch.view_as_real(plain.to(torch.complex128))
    return plain.to(torch.float64)


def _rms(tensor: torch.Tensor) -> float:
    if tensor.numel() == 0:
        return 0.0
    return float(_wide(tensor).square().mean().sqrt())


def _peak(tensor: torch.Tensor) -> float:
    return float(tensor.abs().max()) if tensor.numel() else 0.0
