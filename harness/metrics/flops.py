"""``flops_per_step``: floating point operations of one eager step, forward and backward, by torch's counter.

Matrix products, convolutions and attention, a multiplication and an addition
counted as two; everything else is left out, as usual. Counted on eager's own
kernels, so it is the same number for every compiler. None where the step has
nothing that the counter knows.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from harness.metrics import WHOLE, ByVariant, Ended
from harness.schema import BASELINE

WHEN = "end"


def measure(ended: Ended) -> ByVariant:
    variant = ended.variants[BASELINE]
    flops = count(variant.step)
    variant.release()
    return {WHOLE: {"flops_per_step": flops}}


def count(step: Callable[[], object]) -> int | None:
    """FLOPs of ``step()``, or None when the counter saw none."""
    from torch.utils.flop_counter import FlopCounterMode

    counter: Any = FlopCounterMode(display=False, custom_mapping=_cpu_attention())
    with counter:
        step()
    return int(counter.get_total_flops()) or None


def _cpu_attention() -> dict[Any, Callable[..., int]]:
    """Formulas for the CPU's fused attention, which torch's counter does not know by name."""
    from torch.utils import flop_counter

    formula_forward: Any = flop_counter.sdpa_flop_count
    formula_backward: Any = flop_counter.sdpa_backward_flop_count

    def forward(query: Any, key: Any, value: Any, *_: Any, **__: Any) -> int:
        return int(formula_forward(query, key, value))

    def backward(gradient: Any, query: Any, key: Any, value: Any, *_: Any, **__: Any) -> int:
        return int(formula_backward(gradient, query, key, value))

    formulas: dict[str, Callable[..., int]] = {
        "_scaled_dot_product_flash_attention_for_cpu": forward,
        "_scaled_dot_product_flash_attention_for_cpu_backward": backward,
    }
    found: dict[Any, Callable[..., int]] = {}
    for name, formula in formulas.items():
        operation = getattr(torch.ops.aten, name, None)
        if operation is not None and operation not in flop_counter.flop_registry:
            found[operation] = formula
    return found
