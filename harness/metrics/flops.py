"""``flops_per_step``: floating point operations of one eager step, forward and backward, by torch's counter.

Matrix products, convolutions and attention, a multiplication and an addition
counted as two; everything else is left out, as usual. Counted on eager's own
kernels, so it is the same number for every compiler. None where the step has
nothing that the counter knows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from harness.metrics import Ended
from harness.schema import Scalar

WHEN = "eager"


@contextmanager
def observe(ended: Ended, numbers: dict[str, Scalar]) -> Iterator[None]:
    counter = flop_counter()
    with counter:
        yield
    numbers["flops_per_step"] = int(counter.get_total_flops()) or None


def flop_counter() -> Any:
    """torch's counter, which knows the CPU's attention as well: ``with`` it, then ``get_total_flops()``."""
    from torch.utils.flop_counter import FlopCounterMode

    return FlopCounterMode(display=False, custom_mapping=_cpu_attention())


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
