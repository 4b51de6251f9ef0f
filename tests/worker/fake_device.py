"""``python -m tests.worker.fake_device [SUITE[:CASE,...]...]``: full cases on a device that is not the CPU.

The tensors are fake: they have shapes, types and a device, and no values. A case is built on the CPU, as
the harness has it; then its parameters, buffers and inputs go to the device, and forward, loss and backward
run. An operation whose tensors are on two devices raises. That finds what a model leaves on the CPU: tensors
in plain attributes, constants that it makes in each step.

The device is ``meta``. A build of torch for CPUs can make fake tensors on ``cuda:0``, but its autograd has no
such device and ends the process. What is on which device is the same; which kernels CUDA would choose is not
looked at. Prints a line of JSON for each case: ``{"case": ..., "error": sentence or null, "seconds": ...}``.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from itertools import accumulate, pairwise
from typing import Any
from unittest import mock

import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode, unset_fake_temporarily
from torch.fx.experimental.symbolic_shapes import ShapeEnv

from harness.loading.suite_files import load_suite, suite_names
from harness.schema import Case, Mode, Setting
from harness.tensors import map_tensors, named_tensors
from harness.workload import Workload

PLACE = "meta"
LONGEST = 300


def cases_of(suite: str) -> tuple[Case, ...]:
    """The curated cases at full scale: of training, or of inference where a suite has no training."""
    for mode in (Mode.TRAINING, Mode.INFERENCE):
        cases = load_suite(suite).cases(Setting(mode=mode, device_type="cuda", scale="full"))
        if cases:
            return tuple(case for case in cases if not case.skip)
    return ()


def error_of(case: Case) -> str | None:
    """Why a step of this case cannot run on the device, as a sentence; None if it can."""
    with faked(case.suite):
        try:
            elsewhere = _in_either_type(case)
        except Exception as error:  # whatever a model raises
            return f"{type(error).__name__}: {' '.join(str(error).split())[:LONGEST]}"
    return f"on the CPU: {', '.join(elsewhere[:3])}" if elsewhere else None


@contextmanager
def faked(suite: str) -> Iterator[None]:
    """Models of this suite are built, and run, with fake tensors."""
    with ExitStack() as stack:
        stack.enter_context(warnings.catch_warnings())
        warnings.simplefilter("ignore")
        # torch's own draws until all values are within bounds, and fake tensors have no values
        stack.enter_context(
            mock.patch("torch.nn.init._no_grad_trunc_normal_", lambda tensor, *_, **__: tensor)
        )
        stack.enter_context(_with_drop_rates(suite))
        stack.enter_context(FakeTensorMode(allow_non_fake_inputs=True, shape_env=ShapeEnv()))
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
    workload = moved(case, PLACE, cast)
    module, args, kwargs, target = workload.module, workload.args, workload.kwargs, workload.target
    with torch.set_grad_enabled(case.mode is Mode.TRAINING):
        output = module(*args, **kwargs)
    results = dict(named_tensors(output, "output"))
    if case.mode is Mode.TRAINING:
        assert workload.loss is not None
        results["loss"] = workload.loss(output, target)
        results["loss"].backward()  # type: ignore[no-untyped-call]
        gradients = {name: p.grad for name, p in module.named_parameters() if p.grad is not None}
        if not gradients:
            raise ValueError("no parameter has a gradient")
        results |= gradients
    return [name for name, tensor in results.items() if tensor.device.type != PLACE]


def moved(case: Case, place: str, cast: torch.dtype | None) -> Workload:
    """The case's workload, cast and on the device, in its mode."""
    workload = load_suite(case.suite).build(case)
    _move(workload.module.train(case.mode is Mode.TRAINING), place, cast)
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


class _Rate(float):
    def item(self) -> float:
        return float(self)


class _Rates(list[_Rate]):
    """In place of a tensor of a few numbers, which timm reads: fake tensors have no values."""

    def split(self, sizes: Sequence[int]) -> list[_Rates]:
        ends = [sum(sizes[:place]) for place in range(len(sizes) + 1)]
        return [_Rates(self[start:end]) for start, end in pairwise(ends)]

    def tolist(self) -> list[float]:
        return [float(rate) for rate in self]


class _Numbers(list[int]):
    """The same, for numbers of blocks."""

    def __rpow__(self, base: int) -> _Numbers:
        return _Numbers(base**number for number in self)

    def flip(self, _: int) -> _Numbers:
        return _Numbers(reversed(self))

    def cumsum(self, _: int) -> _Numbers:
        return _Numbers(accumulate(self))

    def tolist(self) -> list[int]:
        return [*self]


class _Torch:
    """torch for the files of ``READING``."""

    def arange(self, end: int, **_: Any) -> _Numbers:
        return _Numbers(range(end))

    def tensor(self, values: Any, **given: Any) -> Any:
        plain = isinstance(values, (list, tuple)) and all(isinstance(value, int) for value in values)
        return _Numbers(values) if plain else torch.tensor(values, **given)

    def linspace(self, start: float, end: float, steps: int, **_: Any) -> _Rates:
        return _Rates(_Rate(start + (end - start) * i / max(1, steps - 1)) for i in range(steps))

    def __getattr__(self, name: str) -> Any:
        return getattr(torch, name)


READING = {
    "timm_models": ("timm.layers.drop", "timm.models.nest"),
    "huggingface": (
        "transformers.models.convnextv2.modeling_convnextv2",
        "transformers.models.hiera.modeling_hiera",
    ),
}
"""Files that read sizes and rates of a model from tensors while they build it."""


@contextmanager
def _with_drop_rates(suite: str) -> Iterator[None]:
    if suite not in READING:
        yield
        return
    with ExitStack() as stack:
        for place in READING[suite]:
            importlib.import_module(place)
            stack.enter_context(mock.patch(f"{place}.torch", _Torch()))
        if suite == "timm_models":
            regnet: Any = importlib.import_module("timm.models.regnet").RegNet
            sizes = _with_values(regnet._get_stage_args)
            stack.enter_context(mock.patch.object(regnet, "_get_stage_args", sizes))
        yield


def _with_values(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function that computes sizes with tensors, outside the fake mode: it reads their values."""

    def outside(*args: Any, **kwargs: Any) -> Any:
        with unset_fake_temporarily():
            return function(*args, **kwargs)

    return outside


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
