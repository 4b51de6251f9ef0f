"""The drift check: whether a variant's results after the timed rounds equal its results before them.

Parity is judged before the rounds. Its tensors are then dropped to free memory for the rounds. The drift
check keeps a sample of each tensor, which suffices to detect a candidate whose results change.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch

from harness.parity.distance import eager_alone, is_exact_kind, peak, rms, rmse, wide
from harness.parity.limits import Limits
from harness.parity.reference import Reference, Tensors, family_of
from harness.schema import TensorError
from harness.timing.step import Variant

MOST = 4096  # elements of a tensor that are kept
SLACK = 2.0  # multiple of a tensor's limit: the two runs may have errors of opposite signs
OWN = 3.0  # multiple of the distance of the two checked calls


@dataclass(frozen=True, slots=True, kw_only=True)
class _Kept:
    shape: torch.Size
    dtype: torch.dtype
    sample: torch.Tensor
    allowed: float


class DriftCheck:
    """Keeps samples of the variants' checked results, and compares later results with them."""

    def __init__(self) -> None:
        self._kept: dict[Variant, dict[str, _Kept]] = {}

    def remember(self, variant: Variant, results: Tensors, again: Tensors, reference: Reference) -> None:
        """Keeps ``results``. ``again``: those results of a second call that should be equal to them."""
        self._kept[variant] = {
            name: _Kept(
                shape=tensor.shape,
                dtype=tensor.dtype,
                sample=sample,
                allowed=_allowed(name, sample, again.get(name), reference),
            )
            for name, tensor in results.items()
            for sample in (_sample(tensor),)
        }

    def moved(self, variant: Variant, copy: Variant) -> None:
        """``copy`` takes the place of ``variant``, whose results it must repeat."""
        if variant in self._kept:
            self._kept[copy] = self._kept.pop(variant)

    def changed(self, variant: Variant, now: Tensors) -> TensorError | None:
        """The tensor of ``now`` that exceeds its limit most; None if no tensor exceeds it."""
        kept = self._kept.get(variant, {})
        errors = [_compare(tensor, was, now.get(tensor)) for tensor, was in kept.items()]
        beyond = [error for error in errors if error.failure is not None]
        return max(beyond, key=lambda e: e.candidate_rmse / max(e.allowed, 1e-300), default=None)


def _allowed(name: str, sample: torch.Tensor, again: torch.Tensor | None, reference: Reference) -> float:
    """The largest permitted RMS of the change; for integers the largest share of changed elements.

    Both runs must be within the limit of parity; and a variant whose calls differ may differ later, too.
    """
    rule = reference.rule
    spread = reference.spread.get(name, 0.0)
    if is_exact_kind(sample):
        return rule.unit + SLACK * spread
    other = sample if again is None else _sample(again)
    own = rmse(sample, other) if other.shape == sample.shape and other.dtype == sample.dtype else 0.0
    own = own if math.isfinite(own) else 0.0
    known = reference.known.get(name)
    if known is not None and rule.name == "scaled":
        return SLACK * Limits.for_tensor(name, reference).of(eager_alone(known))[0] + OWN * own
    family = reference.families.get(family_of(name))
    noise = rule.noise * family.scale if family is not None else 0.0
    size = rms(sample[torch.isfinite(sample)])
    return SLACK * (max(rule.tolerance, 16 * rule.unit) * size + noise + spread) + OWN * own


def _compare(name: str, was: _Kept, now: torch.Tensor | None) -> TensorError:
    error = TensorError(
        name=name,
        numel=was.shape.numel(),
        scale=rms(was.sample),
        eager_rmse=0.0,
        candidate_rmse=0.0,
        allowed=was.allowed,
        candidate_max=0.0,
        allowed_max=was.allowed,
    )
    if now is None or now.shape != was.shape or now.dtype != was.dtype:
        return replace(error, failure="after the timed rounds it is missing or has another shape or dtype")
    sample = _sample(now)
    distance = rmse(was.sample, sample)
    error = replace(error, candidate_rmse=distance, candidate_max=peak(wide(was.sample) - wide(sample)))
    if distance <= was.allowed:
        return error
    why = f"after the timed rounds it differs from before by RMS {distance:.3g}, above {was.allowed:.3g}"
    return replace(error, failure=why)


def _sample(tensor: torch.Tensor) -> torch.Tensor:
    """A fixed random choice of elements, on the CPU. (Every n-th element might be one column.)"""
    flat = tensor.detach().flatten()
    if flat.numel() > MOST:
        generator = torch.Generator().manual_seed(flat.numel())
        places = torch.randint(flat.numel(), (MOST,), generator=generator)
        flat = flat[places.to(flat.device)]
        return flat.cpu()
    return flat.cpu().clone()  # a later step may overwrite the tensor
