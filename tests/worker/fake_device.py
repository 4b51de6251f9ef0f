"""Cases on a device that is not the CPU.

A case is built on the CPU, as the harness has it. Then its parameters, buffers and inputs become fake tensors
on the device, without values; forward, loss and backward run. An operation whose tensors are on two
devices raises. That finds what a model leaves on the CPU: tensors in plain attributes, constants that are
made in each step.

The device is ``meta``. A build of torch for CPUs can make fake tensors on ``cuda:0``, but its autograd has no
such device and ends the process. What is on which device is the same; which kernels CUDA would choose is not
looked at.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import ShapeEnv

from harness.loading.suite_files import load_suite
from harness.schema import Case, Mode, Setting
from harness.tensors import map_tensors, named_tensors

PLACE = "meta"
LONGEST = 300


def cases_of(suite: str) -> tuple[Case, ...]:
    """The curated cases, tiny: of training, or of inference where a suite has no training."""
    for mode in (Mode.TRAINING, Mode.INFERENCE):
        cases = load_suite(suite).cases(Setting(mode=mode, device_type="cuda", scale="tiny"))
        if cases:
            return tuple(case for case in cases if not case.skip)
    return ()


def error_of(case: Case) -> str | None:
    """Why a step of this case cannot run on the device, as a sentence; None if it can."""
    try:
        elsewhere = _in_either_type(case)
    except Exception as error:  # whatever a model raises
        return f"{type(error).__name__}: {' '.join(str(error).split())[:LONGEST]}"
    return f"on the CPU: {', '.join(elsewhere[:3])}" if elsewhere else None


def _in_either_type(case: Case) -> list[str]:
    """In float32; in bfloat16 where torch's fake products of experts, unlike its kernels, know no other."""
    try:
        return _step(case, None)
    except RuntimeError as error:
        if "Expected inputs of BF16 type" not in str(error):
            raise
    return _step(case, torch.bfloat16)


def _step(case: Case, cast: torch.dtype | None) -> list[str]:
    """Runs the step. The names of results that are not on the device."""
    workload, training = load_suite(case.suite).build(case), case.mode is Mode.TRAINING
    fake = FakeTensorMode(allow_non_fake_inputs=True, shape_env=ShapeEnv())
    with fake, torch.set_grad_enabled(training):
        module = workload.module.train(training)
        _move(module, cast)
        given = workload.args, dict(workload.kwargs), workload.target
        args, kwargs, target = map_tensors(given, lambda tensor: _moved(tensor, cast))
        output = module(*args, **kwargs)
        results = dict(named_tensors(output, "output"))
        if training:
            assert workload.loss is not None
            results["loss"] = workload.loss(output, target)
            results["loss"].backward()  # type: ignore[no-untyped-call]
            gradients = {name: p.grad for name, p in module.named_parameters() if p.grad is not None}
            if not gradients and list(module.parameters()):
                raise ValueError("no parameter has a gradient")
            results |= gradients
        return [name for name, tensor in results.items() if tensor.device.type != PLACE]


def _moved(tensor: torch.Tensor, cast: torch.dtype | None) -> torch.Tensor:
    kind = cast if cast is not None and tensor.is_floating_point() else tensor.dtype
    return tensor.detach().to(PLACE, kind).requires_grad_(tensor.requires_grad)


def _move(module: nn.Module, cast: torch.dtype | None) -> None:
    """As ``module.to``, which cannot move fake tensors: parameters and buffers, and nothing else."""
    known: dict[int, Any] = {}
    for part in module.modules():
        for name, parameter in list(part._parameters.items()):
            if parameter is not None:
                moved = nn.Parameter(_moved(parameter, cast), parameter.requires_grad)
                part._parameters[name] = known.setdefault(id(parameter), moved)
        for name, buffer in list(part._buffers.items()):
            if buffer is not None:
                part._buffers[name] = known.setdefault(id(buffer), _moved(buffer, cast))
