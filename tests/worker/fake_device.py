"""``python -m tests.worker.fake_device [SUITE[:CASE,...]...]``: cases on a device that is not the CPU.

A case is built on the CPU, as the harness has it. Then its parameters, buffers and inputs become fake tensors
on the device, without values; forward, loss and backward run. An operation whose tensors are on two
devices raises. That finds what a model leaves on the CPU: tensors in plain attributes, constants that are
made in each step.

The device is ``meta``. A build of torch for CPUs can make fake tensors on ``cuda:0``, but its autograd has no
such device and ends the process. What is on which device is the same; which kernels CUDA would choose is not
looked at. Prints a line of JSON for each case: ``{"case": ..., "error": sentence or null, "seconds": ...}``.
"""

from __future__ import annotations

import json
import os
import sys
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import ShapeEnv

from harness.loading.suite_files import load_suite, suite_names
from harness.schema import Case, Mode, Setting
from harness.tensors import map_tensors, named_tensors
from harness.workload import Workload

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


@contextmanager
def faked() -> Iterator[None]:
    """What is computed inside has no values."""
    fake = FakeTensorMode(allow_non_fake_inputs=True, shape_env=ShapeEnv())
    with warnings.catch_warnings(), fake:
        warnings.simplefilter("ignore")
        yield


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
    built = load_suite(case.suite).build(case)
    with faked(), torch.set_grad_enabled(case.mode is Mode.TRAINING):
        workload = moved(built, case.mode, PLACE, cast)
        module, target = workload.module, workload.target
        output = module(*workload.args, **workload.kwargs)
        results = dict(named_tensors(output, "output"))
        if case.mode is Mode.TRAINING:
            assert workload.loss is not None
            results["loss"] = workload.loss(output, target)
            results["loss"].backward()  # type: ignore[no-untyped-call]
            gradients = {name: p.grad for name, p in module.named_parameters() if p.grad is not None}
            if not gradients and list(module.parameters()):
                raise ValueError("no parameter has a gradient")
            results |= gradients
        return [name for name, tensor in results.items() if tensor.device.type != PLACE]


def moved(workload: Workload, mode: Mode, place: str, cast: torch.dtype | None) -> Workload:
    """The workload, cast and on the device, in this mode; inside ``faked``."""
    _move(workload.module.train(mode is Mode.TRAINING), place, cast)
    given = workload.args, dict(workload.kwargs), workload.target
    args, kwargs, target = map_tensors(given, lambda tensor: _moved(tensor, place, cast))
    return replace(workload, args=args, kwargs=kwargs, target=target)


def _moved(tensor: torch.Tensor, place: str, cast: torch.dtype | None) -> torch.Tensor:
    kind = cast if cast is not None and tensor.is_floating_point() else tensor.dtype
    return tensor.detach().to(place, kind).requires_grad_(tensor.requires_grad)


def _move(module: nn.Module, place: str, cast: torch.dtype | None) -> None:
    """As ``module.to``, which cannot move fake tensors: parameters and buffers, and nothing else."""
    known: dict[int, Any] = {}
    for part in module.modules():
        for name, parameter in list(part._parameters.items()):
            if parameter is not None:
                moved = nn.Parameter(_moved(parameter, place, cast), parameter.requires_grad)
                part._parameters[name] = known.setdefault(id(parameter), moved)
        for name, buffer in list(part._buffers.items()):
            if buffer is not None:
                part._buffers[name] = known.setdefault(id(buffer), _moved(buffer, place, cast))


def main(words: list[str]) -> None:
    os.environ["HF_HUB_OFFLINE"] = "1"
    for word in words or suite_names():
        suite, _, names = word.partition(":")
        for case in cases_of(suite):
            if names and case.name not in names.split(","):
                continue
            began = time.monotonic()
            line = {"case": f"{suite} {case.name} {case.mode.value}", "error": error_of(case)}
            print(json.dumps({**line, "seconds": round(time.monotonic() - began, 2)}), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
