"""The slope of each part: whether a product or reduction in the model, or the inputs' effect, is too large.

In reduced precision the roundings of a model may be larger in its output than an error of 2 % in one of its
parts. But they have no direction, and a wrong part has one: d, the change of the output if this part's result
is scaled. The projection of the error on it, <c - x, d> / <d, d>, estimates by which share the part is too
large; the roundings cancel in it. Zeros, lost blocks and flipped signs in the part's result are seen, too: on
the whole they make it smaller. One more direction is the change of the output from the first inputs to the
other ones: a network with random weights may return nearly the same for all inputs, and an input that is not
refreshed (stale) then looks like roundings.

The directions are differences of runs in fp64 (``MOST`` parts at most, evenly chosen), made once for all
candidates.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from harness.tensors import Tensors
from harness.timing.modes import Operations

MOST = 32  # parts
STEP = 2.0**-6  # relative change of a part's result
LEAST = 1e-4  # a part whose scaling moves the outputs by a smaller share of it is not judged
ELEMENTS = 1 << 17  # of all outputs
PARTS = (
    *("mm", "addmm", "bmm", "baddbmm", "convolution", "_softmax", "mean", "embedding"),
    *("native_layer_norm", "native_group_norm", "native_batch_norm", "_native_batch_norm_legit"),
    *("_scaled_dot_product_flash_attention_for_cpu", "_scaled_dot_product_flash_attention"),
    *("_scaled_dot_product_efficient_attention", "_scaled_dot_product_cudnn_attention"),
    *("_scaled_dot_product_attention_math", "_native_batch_norm_legit_no_training", "rms_norm"),
)


class _Scaling(Operations):
    """Counts the parts; scales the result of the part with the number ``chosen``."""

    def __init__(self, chosen: int = -1) -> None:
        super().__init__()
        self.names: list[str] = []
        self._chosen = chosen

    def operation(self, func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        result = func(*args, **kwargs)
        name = func.overloadpacket.__name__
        first = result[0] if isinstance(result, tuple) else result
        if name not in PARTS or not isinstance(first, torch.Tensor) or not first.is_floating_point():
            return result
        self.names.append(name)
        if len(self.names) - 1 == self._chosen:
            first.mul_(1 + STEP)
        return result


@dataclass(frozen=True, slots=True, kw_only=True)
class Directions:
    """``names``: what is too large or too small in the direction of the same row.

    ``rows``: (directions, elements of all outputs in turn), each output divided by its root mean square.
    """

    names: Sequence[str]
    rows: torch.Tensor
    names_of_outputs: Sequence[str]

    @classmethod
    def measure(
        cls, run: Callable[[Callable[[], Any]], Tensors], on_first_inputs: Callable[[], Tensors]
    ) -> Directions | None:
        """None without parts.

        ``run(context)``: sketched outputs of one fp64 forward inside the context. ``on_first_inputs``: the
        same with the first inputs and the other weights.
        """
        count = _Scaling()
        truth = _first_outputs(run(lambda: count))
        total = len(count.names)
        places = {round(i * (total - 1) / (MOST - 1)) for i in range(MOST)} if total > MOST else range(total)
        rows = dict[str, torch.Tensor]()
        for number in sorted(places):
            name = f"the result of {count.names[number]} (part {number + 1} of {total})"
            rows[name] = _relative(truth, run(lambda number=number: _Scaling(number))) / STEP  # type: ignore[misc]
        rows["the change of the outputs with the inputs"] = -_relative(truth, on_first_inputs())
        rows = {
            name: row for name, row in rows.items() if LEAST < float(row.square().mean().sqrt()) < math.inf
        }
        if not rows:
            return None
        return cls(names=tuple(rows), rows=torch.stack(list(rows.values())), names_of_outputs=tuple(truth))

    def slopes(self, truth: Tensors, results: Tensors) -> dict[str, float]:
        """By which share each part is too large in ``results``; {} if they cannot be compared."""
        pairs = [(truth.get(name), results.get(name)) for name in self.names_of_outputs]
        if any(left is None or right is None or left.shape != right.shape for left, right in pairs):
            return {}
        error = _relative({name: truth[name].double() for name in self.names_of_outputs}, results)
        if error.shape != self.rows[0].shape or not bool(torch.isfinite(error).all()):
            return {}
        slopes = self.rows @ error / self.rows.square().sum(1)
        return dict(zip(self.names, slopes.tolist(), strict=True))


def _first_outputs(results: Tensors) -> Tensors:
    """The first floating tensors, in fp64, as long as they have at most ``ELEMENTS``; at least one."""
    outputs, count = dict[str, torch.Tensor](), 0
    for name, tensor in results.items():
        count += tensor.numel()
        if tensor.is_floating_point() and (not outputs or count <= ELEMENTS):
            outputs[name] = tensor.double()
    return outputs


def _relative(truth: Tensors, other: Tensors) -> torch.Tensor:
    """(other - truth) / RMS(truth), of all outputs in turn, flat."""
    rows = []
    for name, exact in truth.items():
        scale = float(exact.square().mean().sqrt())
        rows.append(((other[name].double() - exact) / (scale if scale > 0.0 else math.inf)).flatten())
    return torch.cat(rows)
