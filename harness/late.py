"""Whether a variant still computes, after the timed rounds, what it computed when it was checked.

Parity is judged before the rounds, and the tensors it was judged by are dropped then, for their memory
is the rounds'. What is kept is a sample of each: enough to see a candidate turn wrong in between.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch

from harness.distance import is_exact_kind, peak, rms, rmse, wide
from harness.reference import Reference, Tensors, family_of
from harness.schema import TensorError
from harness.step import Variant

MOST = 4096  # elements of a tensor that are kept
SLACK = 2.0  # times the tolerance: both runs may be off, to different sides


@dataclass(frozen=True, slots=True, kw_only=True)
class _Kept:
    shape: torch.Size
    dtype: torch.dtype
    sample: torch.Tensor
    allowed: float


class LateCheck:
    """Remembers what variants gave when they were checked, to hold against it what they give later."""

    def __init__(self) -> None:
        self._kept: dict[Variant, dict[str, _Kept]] = {}

    def remember(self, variant: Variant, results: Tensors, reference: Reference) -> None:
        self._kept[variant] = {
            name: _Kept(
                shape=tensor.shape,
                dtype=tensor.dtype,
                sample=sample,
                allowed=_allowed(name, sample, reference),
            )
            for name, tensor in results.items()
            for sample in (_sample(tensor),)
        }

    def changed(self, variant: Variant, now: Tensors) -> TensorError | None:
        """The tensor furthest beyond its limit, if any, in what ``variant`` gives now."""
        kept = self._kept.get(variant, {})
        errors = [_compare(tensor, was, now.get(tensor)) for tensor, was in kept.items()]
        beyond = [error for error in errors if error.failure is not None]
        return max(beyond, key=lambda e: e.candidate_rmse / max(e.allowed, 1e-300), default=None)


def _allowed(name: str, sample: torch.Tensor, reference: Reference) -> float:
    """The largest RMS of the change. Integers: the largest share of elements."""
    rule = reference.rule
    spread = reference.spread.get(name, 0.0)
    if is_exact_kind(sample):
        return rule.unit + SLACK * spread
    family = reference.families.get(family_of(name))
    noise = rule.noise * family.scale if family is not None else 0.0
    return SLACK * (
        max(rule.tolerance, 16 * rule.unit) * rms(sample[torch.isfinite(sample)]) + noise + spread
    )


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
        return replace(error, failure="after the timed rounds it has another form than before")
    sample = _sample(now)
    distance = rmse(was.sample, sample)
    error = replace(error, candidate_rmse=distance, candidate_max=peak(wide(was.sample) - wide(sample)))
    if distance <= was.allowed:
        return error
    why = f"after the timed rounds it differs from before by RMS {distance:.3g}, above {was.allowed:.3g}"
    return replace(error, failure=why)


def _sample(tensor: torch.Tensor) -> torch.Tensor:
    """The same elements for the same size, on the CPU. Not every n-th: those may be one column."""
    flat = tensor.detach().flatten()
    if flat.numel() > MOST:
        generator = torch.Generator().manual_seed(flat.numel())
        places = torch.randint(flat.numel(), (MOST,), generator=generator)
        flat = flat[places.to(flat.device)]
        return flat.cpu()
    return flat.cpu().clone()  # a step to come may write over what it is given
