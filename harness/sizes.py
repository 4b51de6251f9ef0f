"""The smaller batches that a step also runs where shapes are to be dynamic: one size would prove nothing."""

from __future__ import annotations

from typing import Any

import torch

from harness.program import Program
from harness.tensors import map_tensors, named_tensors

Inputs = tuple[tuple[Any, ...], dict[str, Any], Any]
"""``(args, kwargs, target)``"""

LEAST = 2  # compilers take a batch of one for a constant, whatever they are asked


def batches(program: Program) -> tuple[int, ...]:
    """The batches of one step, the model's own last: (8,), or (4, 6, 8) with dynamic shapes."""
    whole = _batch(program)
    if whole is None or not (program.options.dynamic_shapes or program.options.dynamic_batch):
        return () if whole is None else (whole,)
    smaller = {size for size in (whole // 2, whole * 3 // 4) if LEAST <= size < whole}
    return (*sorted(smaller), whole)


def smaller_inputs(program: Program) -> tuple[Inputs, ...]:
    """The inputs and targets of the smaller batches: the first rows of the model's own."""
    whole = _batch(program)
    if program.drive is not None or whole is None:
        return ()
    return tuple(_rows(program, whole, size) for size in batches(program)[:-1])


def _rows(program: Program, whole: int, size: int) -> Inputs:
    def first(tensor: torch.Tensor) -> torch.Tensor:
        if tensor.ndim == 0 or tensor.shape[0] != whole:
            return tensor
        return tensor.detach()[:size].clone().requires_grad_(tensor.requires_grad)

    return (
        map_tensors(program.args, first),
        map_tensors(dict(program.kwargs), first),
        map_tensors(program.target, first),
    )


def _batch(program: Program) -> int | None:
    """The first dimension of the first input that has one."""
    for _, tensor in named_tensors((program.args, program.kwargs), "input"):
        if tensor.ndim > 0:
            return int(tensor.shape[0])
    return None
