"""What is watched after the check: whether a variant's results are still those that passed.

After each sample, outside the clock, the loss and a few elements of the outputs are compared with those of
the variant's first sample; at ``LOOKS`` calls, of the gradients, too: a normalization may hide a fault from
the outputs. After the rounds, all results are compared with the checked ones. So a fault that comes with
every n-th call is seen up to n = ``LOOKS``. What changes from step to step in eager is not looked at.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import torch

from harness.parity.measure import is_exact_kind, same_bits
from harness.parity.rule import GARBAGE, Truth, judge
from harness.schema import TensorError
from harness.tensors import Tensors, dense_parts, named_tensors
from harness.timing.step import Variant

if TYPE_CHECKING:
    from harness.parity.checks import Checks

ELEMENTS, OF_GRADIENT = 4096, 64  # that are looked at
LOOKS = 30  # consecutive calls of a candidate whose results are looked at, at least


@dataclass(slots=True)
class _Kept:
    """Of one variant. ``truth``: its own checked results, with the limits of eager's. ``names``: of what
    each step of eager repeats.

    ``samples``: a few elements of its first sample, by the steps of a sample, because each step of a sample
    draws other random numbers.
    """

    truth: Truth
    names: frozenset[str]
    unsteady: frozenset[str]  # in which eager's two runs differ
    samples: dict[int, Tensors] = field(default_factory=dict)
    looks: int = 0  # at calls in a row: samples of one step, without others between them
    worst: TensorError | None = None


class Watch:
    """Of all variants of a session."""

    def __init__(self) -> None:
        self._kept = WeakKeyDictionary[Variant, _Kept]()  # a dropped candidate frees its memory

    def remember(self, variant: Variant, results: Tensors, checks: Checks) -> None:
        """Keeps the checked ``results`` of the first call."""
        truth = replace(checks.truth, exact=None, eager=results, lost=())
        steady = (name for name, spread in checks.spread.items() if not spread)
        names = frozenset(steady) if variant.rewinds else checks.expected.repeated
        unsteady = frozenset(name for name, spread in checks.spread.items() if spread)
        self._kept[variant] = _Kept(truth, names, unsteady)
        for kept in self._kept.values():  # the check of a candidate may have found other limits
            kept.truth = replace(truth, eager=kept.truth.eager)

    def moved(self, variant: Variant, copy: Variant) -> None:
        """``copy`` takes the place of ``variant``, whose results it must repeat."""
        if variant in self._kept:
            self._kept[copy] = self._kept.pop(variant)

    def missing_looks(self, variant: Variant) -> int:
        """How many single calls are still to be looked at."""
        return max(0, LOOKS - self._kept[variant].looks) if variant in self._kept else 0

    def look(self, variant: Variant, result: Any, steps: int = 1) -> None:
        """Compares loss and outputs of a sample's last step with those of the first sample.

        ``result``: (loss, output) of the last of so many ``steps``.
        """
        kept = self._kept.get(variant)
        if kept is None or not isinstance(result, tuple):
            return
        looking = kept.looks < LOOKS
        if looking:
            kept.looks = kept.looks + 1 if steps == 1 else 0
        if steps > 1 and variant.drifts:
            return
        loss, output = result
        parts = (*named_tensors(loss, "loss"), *named_tensors(output, "output"))
        dense = (part for name, tensor in parts for part in dense_parts(name, tensor.detach()))
        now = {name: _few(tensor) for name, tensor in dense if name in kept.names}
        if steps == 1 and looking and any(name.startswith("gradient.") for name in kept.names):
            now.update(_of_gradients(variant, kept.names))
        before = kept.samples.setdefault(steps, now)
        before = {name: tensor for name, tensor in before.items() if name in now}
        when = "in the timed rounds, from sample to sample"
        kept.worst = kept.worst or _furthest(replace(kept.truth, eager=before), now, when)

    def changed_in_rounds(self, variant: Variant) -> TensorError | None:
        return self._kept[variant].worst if variant in self._kept else None

    def changed(self, variant: Variant, now: Tensors) -> TensorError | None:
        """The tensor of ``now`` that exceeds its limit most; None if no tensor exceeds it."""
        if variant not in self._kept:
            return None
        kept = self._kept[variant]
        return _furthest(kept.truth, now, "after the timed rounds, from before", kept.unsteady)


def _of_gradients(variant: Variant, names: Collection[str]) -> Tensors:
    """A few elements in a row, from the middle of each gradient: views, and so cheap."""
    gradients = ((f"gradient.{n}", p.grad) for n, p in variant.program.module.named_parameters())
    parts = dict[str, torch.Tensor]()
    for name, gradient in gradients:
        if name in names and gradient is not None and gradient.is_contiguous():
            start = max(0, gradient.numel() - OF_GRADIENT) // 2
            parts[name] = gradient.detach().view(-1)[start : start + OF_GRADIENT].clone()
    return parts


def _few(tensor: torch.Tensor) -> torch.Tensor:
    """A fixed random choice of elements. (Every n-th element might be one column.)"""
    values = tensor.detach()
    if values.numel() <= ELEMENTS:
        return values.clone()
    generator = torch.Generator().manual_seed(values.numel())
    places = torch.randint(values.numel(), (ELEMENTS,), generator=generator, device="cpu")
    return values.flatten()[places.to(values.device)]


def _furthest(truth: Truth, now: Tensors, when: str, unsteady: Collection[str] = ()) -> TensorError | None:
    """The worst tensor. What is unsteady crosses kinks, too: it fails far beyond its limit."""
    errors = []
    for name, before in truth.eager.items():
        here = now.get(name)
        if here is not None and same_bits(before, here):
            continue
        judgment = judge(truth, name, here, 0)
        # two results may have errors of opposite signs
        times = GARBAGE if name in unsteady else 2.0
        limit = times * judgment.limits.get("size", 0.0) + truth.rule.unit * is_exact_kind(before)
        if not judgment.form and judgment.error.size <= limit:
            continue
        judgment = replace(judgment, limits={**judgment.limits, "size": limit})
        why = judgment.form or f"it differs by {judgment.error.size:.3g} of its size; limit {limit:.3g}"
        errors.append((judgment.used, judgment.as_error(truth, f"{when}: {why}")))
    return max(errors, key=lambda pair: pair[0], default=(0.0, None))[1]
