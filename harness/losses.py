"""Losses that any model can be trained with: its output, reduced to one number."""

from __future__ import annotations

from typing import Any

import torch

from harness.tensors import named_tensors


def mean_of_output(output: Any, target: Any) -> torch.Tensor:
    """The mean of the means of the output's floating tensors, as PyTorch's own harness reduces them."""
    means = [tensor.mean() for tensor in _floating(output)]
    return torch.stack(means).mean()


def sum_of_output(output: Any, target: Any) -> torch.Tensor:
    """The sum of all values of the output's floating tensors."""
    sums = [tensor.sum() for tensor in _floating(output)]
    return torch.stack(sums).sum()


def _floating(output: Any) -> list[torch.Tensor]:
    tensors = [tensor for _, tensor in named_tensors(output, "output")]
    found = [tensor for tensor in tensors if tensor.is_floating_point() and tensor.requires_grad]
    if not found:
        raise ValueError("the output has no floating tensor that a loss could be made of")
    # a model that gives its loss beside what it was made of: all of them may be of other types under autocast
    return [tensor.float() for tensor in found] if len({tensor.dtype for tensor in found}) > 1 else found


REDUCTIONS = {"mean": mean_of_output, "sum": sum_of_output}
"""The functions behind ``--loss``; "own" is the workload's."""
