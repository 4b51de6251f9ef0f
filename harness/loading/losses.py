"""Losses for any model: its output, reduced to one number."""

from __future__ import annotations

from collections.abc import Container, Mapping
from typing import Any

import torch

from harness.tensors import named_tensors


def mean_of_output(output: Any, target: Any) -> torch.Tensor:
    """The mean of the means of the output's floating tensors, as in PyTorch's benchmark harness."""
    return torch.stack([tensor.mean() for tensor in _floating(output)]).mean()


def sum_of_output(output: Any, target: Any) -> torch.Tensor:
    """The sum of all values of the output's floating tensors."""
    return torch.stack([tensor.sum() for tensor in _floating(output)]).sum()


def loss_of_output(output: Any, target: Any) -> Any:
    """The output's own ``loss`` if it has one, else the mean of the output."""
    if isinstance(output, torch.Tensor):  # Dynamo of torch 2.2 breaks the graph at its attributes
        return mean_of_output(output, target)
    own = output.get("loss") if isinstance(output, Mapping) else getattr(output, "loss", None)
    return own if own is not None else mean_of_output(output, target)


def remarks_on_loss(loss: object, results: Container[str]) -> tuple[str, ...]:
    """Which loss a training step has if the user gave none. ``results``: the names of the step's results."""
    if loss is not loss_of_output:
        return ()
    chosen = "the output's own loss" if "output.loss" in results else "the mean of the output"
    return (f"no loss was given: the loss is {chosen}; to set one, give loss=, or return it as third item",)


def _floating(output: Any) -> list[torch.Tensor]:
    tensors = [tensor for _, tensor in named_tensors(output, "output") if tensor.is_floating_point()]
    trainable = [tensor for tensor in tensors if tensor.requires_grad]
    if tensors and not trainable:
        raise ValueError(
            "nothing requires a gradient: no floating tensor of the output depends on a weight or an input "
            "that does; unfreeze what is to be trained, or measure inference"
        )
    if not trainable:
        raise ValueError("the output has no floating tensor that a loss could be made of")
    # under autocast, a model's loss and logits may have different types; Dynamo of torch 2.0 traces no set
    others = [tensor for tensor in trainable if tensor.dtype != trainable[0].dtype]
    return [tensor.float() for tensor in trainable] if others else trainable


REDUCTIONS = {"mean": mean_of_output, "sum": sum_of_output}
"""The functions of ``--loss``. "own" is not here: it is the workload's loss."""
