"""Whether a training step would compute any gradient."""

from __future__ import annotations

from harness.tensors import named_tensors
from harness.workload import Workload


def why_not_trainable(workload: Workload) -> str | None:
    """A sentence if all parameters are frozen and no input requires a gradient, else None.

    None, too, for a module without parameters: it may use tensors that are not registered as parameters.
    """
    parameters = list(workload.module.parameters())
    inputs = [tensor for _, tensor in named_tensors((workload.args, dict(workload.kwargs)), "input")]
    if not parameters or any(tensor.requires_grad for tensor in (*parameters, *inputs)):
        return None
    return (
        f"nothing requires a gradient: all {len(parameters)} parameters are frozen; "
        "unfreeze what is to be trained, or use --inference"
    )
