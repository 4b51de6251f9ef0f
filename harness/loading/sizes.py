"""The sizes of a model and its inputs, and the smaller batches that a step with dynamic shapes also runs.

With one batch size alone, a step would not use dynamic shapes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from harness.program import Program
from harness.schema import ModelFacts
from harness.tensors import inner_tensors, map_tensors, named_tensors, shape_of

Inputs = tuple[tuple[Any, ...], dict[str, Any], Any]
"""``(args, kwargs, target)``"""

LEAST = 2  # compilers treat a batch of one as a constant, even with dynamic shapes


def batches(program: Program) -> tuple[int, ...]:
    """The batches of one step, the model's own last: (8,), or (4, 6, 8) with dynamic shapes.

    A step of generation runs its own batch alone.
    """
    whole = batch_of(program)
    dynamic = program.options.dynamic_shapes or program.options.dynamic_batch
    if whole is None or program.drive is not None or not dynamic:
        return () if whole is None else (whole,)
    smaller = {size for size in (whole // 2, whole * 3 // 4) if LEAST <= size < whole}
    return (*sorted(smaller), whole)


def smaller_inputs(program: Program) -> tuple[Inputs, ...]:
    """The inputs and targets of the smaller batches: the first rows of the model's own."""
    return tuple(with_rows(program, range(size)) for size in batches(program)[:-1])


def with_rows(program: Program, places: Sequence[int]) -> Inputs:
    """The inputs and targets with these rows of the batch, in this order: at most as many as it has."""
    whole = batch_of(program)

    def chosen(tensor: torch.Tensor) -> torch.Tensor:
        if tensor.ndim == 0 or tensor.is_nested or tensor.shape[0] != whole:
            return tensor
        rows = tensor.detach()[: len(places)].clone()  # in the tensor's order of memory
        rows.copy_(tensor.detach()[list(places)]).requires_grad_(tensor.requires_grad)
        if 0 in getattr(tensor, "_dynamo_dynamic_indices", ()):  # else Dynamo compiles this size by itself
            torch._dynamo.mark_dynamic(rows, 0)  # noqa: SLF001 - torch has no other name for it
        return rows

    inputs: Inputs = map_tensors((program.args, dict(program.kwargs), program.target), chosen)
    return inputs


def batch_of(program: Program) -> int | None:
    """The first dimension of the first input that has one."""
    tensors = named_tensors((program.args, program.kwargs), "input")
    return next((int(tensor.size(0)) for _, tensor in tensors if tensor.ndim > 0), None)


def facts_of(program: Program, remarks: tuple[str, ...] = (), generators: tuple[str, ...] = ()) -> ModelFacts:
    """A shared parameter is counted once."""
    parameters = list(program.module.parameters())
    tensors = (tensor for parameter in parameters for _, tensor in inner_tensors("", parameter))
    shapes = [
        f"{name}: {str(tensor.dtype).removeprefix('torch.')}{list(shape_of(tensor))}"
        for name, tensor in named_tensors((program.args, program.kwargs), "input")
    ]
    return ModelFacts(
        parameters=sum(p.numel() for p in parameters),
        parameter_bytes=sum(tensor.numel() * tensor.element_size() for tensor in tensors),
        input_shapes=tuple(shapes),
        batch_size=batch_of(program),
        remarks=remarks,
        generators=generators,
    )
