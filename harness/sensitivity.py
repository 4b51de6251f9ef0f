"""How far a rounding can carry a gradient: eager again, with weights changed in their last digits.

Where a value lies next to a kink (a ReLU's zero, a maximum's tie), the last digit decides on which side it
falls, and the gradient jumps. A compiler that rounds otherwise than eager is then as far from fp64 as
one that is wrong, though it computes exactly what a model with a hair's breadth other weights has. So where a
candidate fails, eager is run a few more times with every weight changed by some units in its last place;
a tensor passes if it is as near to fp64 as one of these runs, by the rule's own limits. A tensor
that does not depend on the last digits gains nothing by it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import torch
from torch import nn

from harness.reference import Reference, Tensors, make_reference
from harness.step import Variant

RUNS = 8
SIZE = 8.0  # units in the last place, standard deviation: what sums of thousands of terms are off by


def shaken_runs(
    reference: Reference, fresh: Callable[[], Variant], run: Callable[[Variant], Tensors]
) -> Callable[[], tuple[Reference, ...]]:
    """To be called for ``shaken_references``: they are made the first time, and then kept."""
    return cache(lambda: shaken_references(reference, fresh, run))


def shaken_references(
    reference: Reference, fresh: Callable[[], Variant], run: Callable[[Variant], Tensors]
) -> tuple[Reference, ...]:
    """``reference`` with shaken eager runs in place of eager's; () where that would say nothing.

    In reduced precision a unit is large and kinks are lost in the other errors; the published rule has no
    such thing; and without fp64 there is no truth that both could be near to.
    """
    rule = reference.rule
    if reference.exact is None or rule.reduced or rule.name != "scaled":
        return ()
    found = []
    for seed in range(RUNS):
        variant = fresh()
        shake(variant.program.module, SIZE * rule.unit, seed)
        results = run(variant)
        found.append(make_reference(reference.exact, results, results, rule))
    return tuple(found)


def shake(module: nn.Module, size: float, seed: int) -> None:
    """Multiplies every floating parameter by 1 + ``size`` * a standard normal number, in place."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in module.parameters():
            if parameter.is_floating_point():
                noise = torch.randn(parameter.shape, generator=generator, dtype=torch.float32)
                parameter.mul_(1 + size * noise.to(parameter.device, parameter.dtype))
