"""A submodule of a workload as a workload of its own: its copy, with the inputs that eager gives it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import torch
from torch import nn

from harness.loading.dropout import neutralize
from harness.schema import Case, Job, Mode
from harness.tensors import map_tensors, named_tensors
from harness.timing.step import seed_everything
from harness.workload import Build, Workload

Arguments = tuple[tuple[Any, ...], dict[str, Any]]
"""Positional and named arguments of a call."""


def given_to(workload: Workload, names: Sequence[str], job: Job) -> dict[str, Arguments]:
    """The arguments of the first call of each of these submodules in one forward of eager, in float32.

    Submodules that are not called, or whose call has no tensor, are left out.
    """
    arguments: dict[str, Arguments] = {}

    def watch(name: str, _: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if name not in arguments and any(True for _ in named_tensors((args, kwargs), "given")):
            arguments[name] = map_tensors((args, kwargs), lambda tensor: tensor.detach().clone())

    module = workload.module
    module.train(job.case.mode is Mode.TRAINING and not job.protocol.use_eval_mode)
    if not job.protocol.keep_dropout:
        neutralize(module)
    hooks = [
        module.get_submodule(name).register_forward_pre_hook(partial(watch, name), with_kwargs=True)
        for name in names
    ]
    try:
        seed_everything(job.protocol.seed)
        with torch.no_grad():
            module(*workload.args, **workload.kwargs)
    finally:
        for hook in hooks:
            hook.remove()
    return arguments


def building_part(build: Build, name: str, job: Job) -> Build:
    """A function that builds the case and returns its submodule ``name`` ("" is the whole).

    Training differentiates by the weights of the submodule and by its arguments.
    """

    def built(case: Case) -> Workload:
        workload = build(case)
        if not name:
            return workload
        arguments = given_to(workload, [name], job)
        if name not in arguments:
            raise LookupError(f"eager does not call the submodule {name!r}")
        training = case.mode is Mode.TRAINING
        args, kwargs = map_tensors(
            arguments[name], lambda tensor: tensor.requires_grad_(training and tensor.is_floating_point())
        )
        part = workload.module.get_submodule(name)
        return Workload(module=part, args=args, kwargs=kwargs, loss=weighted_squares if training else None)

    return built


def weighted_squares(output: Any, _: Any) -> torch.Tensor:
    """A loss whose gradient differs from element to element, so that no part of the output is ignored."""
    terms = []
    for _name, tensor in named_tensors(output, "output"):
        if tensor.is_floating_point() and tensor.requires_grad:
            values = tensor.flatten().float()
            weights = torch.linspace(0.5, 1.5, values.numel(), device=values.device)
            terms.append((values.square() * weights).mean())
    return torch.stack(terms).sum()


def called_inside(module: nn.Module, name: str) -> Iterator[str]:
    """The names of the submodules just below ``name`` that have a forward: containers give their contents."""
    for child, part in module.get_submodule(name).named_children():
        full = f"{name}.{child}" if name else child
        if isinstance(part, (nn.ModuleList, nn.ModuleDict)):
            yield from called_inside(module, full)
        else:
            yield full
