"""``flops_per_step``: floating point operations of one eager step, forward and backward, by torch's counter.

It counts matrix products, convolutions and attention, with a multiplication and an addition as two
operations; all other operations are left out, as is usual. The number is eager's, so it is the same for
every compiler.

A step without any of these that computes by elementwise operations, sums, means and maxima alone has one for
each number of an elementwise result and for each number that is reduced: m * n for the addition of two
matrices of m x n, and m * n for its sum. With any other operation (a fused softmax or norm) it is None.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

from harness.declared import TERA
from harness.metrics import Ended, declared_beside
from harness.schema import Scalar

WHEN = "eager"
METRICS = declared_beside(__file__, tflop_per_s=lambda seen: seen.per_s("flops_per_step", TERA))


@contextmanager
def observe(ended: Ended, numbers: dict[str, Scalar]) -> Iterator[None]:
    counter, elements = flop_counter(), element_counter()
    with _seeing_compiled(), counter, elements:
        yield
    alone = 0 if elements.others else elements.flops
    numbers["flops_per_step"] = int(counter.get_total_flops()) or alone or None


REDUCTIONS = ("sum", "mean", "amax")
MOVES = ("clone", "copy_", "_to_copy", "cat", "fill_", "zero_", "slice_backward", "_unsafe_view")
MAKES = ("empty", "zeros", "ones", "full", "new_", "scalar_tensor", "rand")


def element_counter() -> Any:
    """A context manager: ``flops`` of elementwise operations and sums, ``others``: whether others ran."""
    import torch

    from harness.timing.modes import Operations

    class Counter(Operations):
        flops, others = 0, False

        def operation(self, func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
            result = func(*args, **kwargs)
            if self.others:  # a product, for one: there is nothing more to count
                return result
            name = func._schema.name.removeprefix("aten::")  # noqa: SLF001 - torch's name
            aliases = [r.alias_info for r in func._schema.returns]  # noqa: SLF001 - torch's name
            if name in MOVES or name.startswith(MAKES) or any(a and not a.is_write for a in aliases):
                return result
            if name in REDUCTIONS:
                self.flops += args[0].numel()
            elif torch.Tag.pointwise in func.tags and isinstance(result, torch.Tensor):
                self.flops += result.numel()
            else:
                self.others = True
            return result

    return Counter()


def _seeing_compiled() -> Any:
    """Inside, torch's counter is like ``Operations``: Dynamo gives up no code for it."""
    from torch.utils import flop_counter

    mode = getattr(flop_counter, "_FlopCounterMode", flop_counter.FlopCounterMode)
    return patch.object(mode, "ignore_compile_internals", classmethod(lambda _: True), create=True)


def flop_counter() -> Any:
    """torch's counter with our formulas: a context manager with ``get_total_flops()``."""
    import torch
    from torch.utils.flop_counter import FlopCounterMode

    formulas = {**_cpu_attention(), torch.ops.aten.convolution_backward: _convolution_backward}
    counter = FlopCounterMode(display=False, custom_mapping=formulas)
    # of all modules: its own tracker's hooks fail in the branches of torch.cond
    none = {"__enter__": lambda: None, "__exit__": lambda *_: None}
    vars(counter)["mod_tracker"] = SimpleNamespace(parents=("Global",), **none)
    return counter


def _convolution_backward(gradient: Any, inputs: Any, weight: Any, *others: Any, **_out: Any) -> int:
    """Each gradient has the FLOPs of the forward. The arguments are those of the operation, as shapes.

    torch's formula (2.13, 2.15; pytorch/pytorch#183405) multiplies a grouped weight's by the groups.
    """
    *_, transposed, _padding, _groups, wanted = others
    each: int = 2 * math.prod(inputs if transposed else gradient) * math.prod(weight[1:])
    return each * sum(map(bool, wanted[:2]))


def _cpu_attention() -> dict[Any, Callable[..., int]]:
    """Formulas for the CPU's fused attention, which torch's counter does not know."""
    import torch
    from torch.utils import flop_counter

    def of_shapes(formula: Any, inputs: int) -> Callable[..., int]:
        return lambda *args, **_: int(formula(*args[:inputs]))

    forward = "_scaled_dot_product_flash_attention_for_cpu"
    formulas = {
        forward: of_shapes(flop_counter.sdpa_flop_count, 3),  # of query, key and value
        f"{forward}_backward": of_shapes(flop_counter.sdpa_backward_flop_count, 4),  # and the gradient
    }
    operations = {getattr(torch.ops.aten, name, None): formula for name, formula in formulas.items()}
    known = {None, *flop_counter.flop_registry}
    return {operation: formula for operation, formula in operations.items() if operation not in known}
