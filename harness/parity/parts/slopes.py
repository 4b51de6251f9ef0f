"""The slope of each part: whether a product or reduction in the model, or the inputs' effect, is too large.

In reduced precision the roundings of a model may be larger in its output than an error of 2 % in one of its
parts. But they have no direction, and a wrong part has one: d, the change of the output if this part's result
is scaled. The projection of the error on it, <c - x, d> / <d, d>, estimates by which share the part is too
large; the roundings cancel in it. Zeros, lost blocks and flipped signs in the part's result are seen, too: on
the whole they make it smaller. One more direction is the change of the output from the first inputs to the
other ones: a network with random weights may return nearly the same for all inputs, and an input that is not
refreshed (stale) then looks like roundings.

The directions are differences of runs in fp64 (``MOST`` parts at most, evenly chosen), made once for all
candidates. A part's slope may be as large as ``MULTIPLIER`` times eager's, plus what independent roundings of
eager's size give by chance, plus a floor.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from harness.parity.reference import Reference, Tensors
from harness.schema import TensorError

MOST = 32  # parts
STEP = 2.0**-6  # relative change of a part's result
MULTIPLIER = 2.0  # of eager's slope
CHANCE = 8.0  # standard deviations of the slope that independent roundings of eager's size give
NOISY = 0.25  # error of eager's outputs, relative to them: beyond it, directions mean nothing
LEAST = 1e-4  # a part whose scaling moves the outputs by a smaller share of it is not judged
ELEMENTS = 1 << 17  # of all outputs
PARTS = (
    *("mm", "addmm", "bmm", "baddbmm", "convolution", "_softmax", "mean", "embedding"),
    *("native_layer_norm", "native_group_norm", "native_batch_norm", "_native_batch_norm_legit"),
    *("_scaled_dot_product_flash_attention_for_cpu", "_scaled_dot_product_flash_attention"),
    *("_scaled_dot_product_efficient_attention", "_scaled_dot_product_cudnn_attention"),
    *("_scaled_dot_product_attention_math", "_native_batch_norm_legit_no_training", "rms_norm"),
)


class _Scaling(TorchDispatchMode):  # type: ignore[no-untyped-call] # of torch
    """Counts the parts; scales the result of the part with the number ``chosen``."""

    def __init__(self, chosen: int = -1) -> None:
        super().__init__()  # type: ignore[no-untyped-call] # of torch
        self.names: list[str] = []
        self._chosen = chosen

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        made = func(*args, **(kwargs or {}))
        name = func.overloadpacket.__name__
        first = made[0] if isinstance(made, tuple) else made
        if name not in PARTS or not isinstance(first, torch.Tensor) or not first.is_floating_point():
            return made
        self.names.append(name)
        if len(self.names) - 1 == self._chosen:
            first.mul_(1 + STEP)
        return made


@dataclass(frozen=True, slots=True, kw_only=True)
class PartSlopes:
    """Directions of the parts. ``names``: what is too large or too small in the direction of the same place.

    ``directions``: one row for each part, over all outputs in turn, each divided by its root mean square.
    """

    names: Sequence[str]
    directions: torch.Tensor
    names_of_outputs: Sequence[str]
    floor: float = 0.0  # a slope that is permitted in any case

    @classmethod
    def measure(
        cls,
        run: Callable[[Callable[[], Any]], Tensors],
        on_first_inputs: Callable[[], Tensors],
        floor: float = 0.0,
    ) -> PartSlopes | None:
        """None without parts.

        ``run(context)``: sampled outputs of one fp64 forward inside the context. ``on_first_inputs``: the
        same with the first inputs and the other weights.
        """
        count = _Scaling()
        truth = _first_outputs(run(lambda: count))
        total = len(count.names)
        chosen = sorted({round(i * (total - 1) / max(1, MOST - 1)) for i in range(MOST)} if total else ())
        if total <= MOST:
            chosen = list(range(total))
        found = dict[str, torch.Tensor]()
        for number in chosen:
            name = f"the result of {count.names[number]} (part {number + 1} of {total})"
            found[name] = _relative(truth, run(lambda number=number: _Scaling(number))) / STEP  # type: ignore[misc]
        found["the change of the outputs with the inputs"] = -_relative(truth, on_first_inputs())
        found = {name: row for name, row in found.items() if _moves_outputs(row)}
        if not found:
            return None
        return cls(
            names=tuple(found),
            directions=torch.stack(list(found.values())),
            names_of_outputs=tuple(truth),
            floor=floor,
        )

    def judge(self, reference: Reference, exact: Tensors, candidate: Tensors) -> TensorError | None:
        """The part that exceeds its limit most, as an error of the outputs; None if none does.

        ``exact``: fp64's results of the step that ``reference`` and ``candidate`` are of.
        """
        if any(name not in side for name in self.names_of_outputs for side in (exact, candidate)):
            return None  # found elsewhere
        truth = {name: exact[name].double() for name in self.names_of_outputs}
        theirs = _relative(truth, candidate)
        ours = _relative(truth, reference.eager)
        if not bool(torch.isfinite(theirs).all() and torch.isfinite(ours).all()):
            return None
        if float(ours.square().mean().sqrt()) > NOISY:
            return None
        squares = self.directions.square().sum(1)
        slopes, eager = self.directions @ theirs / squares, self.directions @ ours / squares
        chance = float(ours.square().mean().sqrt()) / squares.sqrt()
        floor = max(reference.rule.slope_floor, self.floor)
        limits = MULTIPLIER * eager.abs() + CHANCE * chance + floor
        worst = int((slopes.abs() / limits).argmax())
        slope, limit = float(slopes[worst]), float(limits[worst])
        if abs(slope) <= limit:
            return None
        size = "large" if slope > 0 else "small"
        return TensorError(
            name="output",
            numel=theirs.numel(),
            scale=1.0,
            eager_rmse=float(ours.square().mean().sqrt()),
            candidate_rmse=float(theirs.square().mean().sqrt()),
            allowed=0.0,
            candidate_max=float(theirs.abs().max()),
            allowed_max=0.0,
            slope=slope,
            eager_slope=float(eager[worst]),
            allowed_slope=limit,
            failure=f"as if {self.names[worst]} were {abs(slope):.2%} too {size}, "
            f"above the limit {limit:.2%}",
        )


def _moves_outputs(row: torch.Tensor) -> bool:
    return bool(torch.isfinite(row).all()) and float(row.square().mean().sqrt()) > LEAST


def _first_outputs(results: Tensors) -> Tensors:
    """The first floating tensors, in fp64, as long as they have at most ``ELEMENTS``; at least one."""
    found, count = dict[str, torch.Tensor](), 0
    for name, tensor in results.items():
        count += tensor.numel()
        if tensor.is_floating_point() and (not found or count <= ELEMENTS):
            found[name] = tensor.double()
    return found


def _relative(truth: Tensors, other: Tensors) -> torch.Tensor:
    """(other - truth) / RMS(truth), of all outputs in turn, flat."""
    rows = []
    for name, exact in truth.items():
        scale = float(exact.square().mean().sqrt())
        rows.append(((other[name].double() - exact) / (scale if scale > 0.0 else math.inf)).flatten())
    return torch.cat(rows)
