"""Losses for any model: its output, reduced to one number."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from harness.tensors import Tensors, listed, named_tensors

GIVE = "give a loss of (output, target), or measure inference"


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


def remarks_on_loss(loss: object, results: Tensors) -> tuple[str, ...]:
    """Which loss a training step has if the user gave none. ``results``: of the step, by name."""
    if loss is not loss_of_output:
        return ()
    chosen = "the output's own loss" if "output.loss" in results else "the mean of the output"
    outputs = {name: tensor for name, tensor in results.items() if name.split(".")[0] == "output"}
    left = [n for n, tensor in outputs.items() if tensor.is_complex() or not tensor.numel()]
    if left and "output.loss" not in results:
        chosen += f" without {listed(left)} (empty or complex)"
    return (f"no loss was given: the loss is {chosen}; to set one, give loss=, or return it as third item",)


def _floating(output: Any) -> list[torch.Tensor]:
    tensors = [
        tensor for _, tensor in named_tensors(output, "output", objects=False) if tensor.is_floating_point()
    ]
    trainable = [_readable(t) for t in tensors if t.requires_grad and (t.is_nested or t.numel())]
    if any(tensor.requires_grad for tensor in tensors) and not trainable:
        raise ValueError(f"the output's floating tensors are empty, and have no mean: {GIVE}")
    if tensors and not trainable:
        raise ValueError(
            "nothing requires a gradient: no floating tensor of the output depends on a weight or an input "
            "that does; unfreeze what is to be trained, or measure inference"
        )
    if not trainable:
        kinds = sorted({str(t.dtype).removeprefix("torch.") for _, t in named_tensors(output, "output")})
        only = f" (only {', '.join(kinds)})" if kinds else ""
        raise ValueError(f"the output has no floating tensor that a loss could be made of{only}: {GIVE}")
    # under autocast, a model's loss and logits may have different types; Dynamo of torch 2.0 traces no set
    others = [tensor for tensor in trainable if tensor.dtype != trainable[0].dtype]
    return [tensor.float() for tensor in trainable] if others else trainable


def _readable(tensor: torch.Tensor) -> torch.Tensor:
    """A tensor that has a mean and a sum: torch computes none of sparse and of nested ones."""
    if tensor.is_nested:
        return torch.cat([part.flatten() for part in tensor.unbind()])
    return tensor if tensor.layout is torch.strided else tensor.to_dense()


REDUCTIONS = {"mean": mean_of_output, "sum": sum_of_output}
"""The functions of ``--loss``. "own" is not here: it is the workload's loss."""
