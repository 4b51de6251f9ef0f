"""Models of all suites: none leaves a tensor on the CPU, and a seed decides all.

A case is built on the CPU, as the harness has it. Then its parameters, buffers and inputs become fake tensors
on the device, without values; forward, loss and backward run. An operation whose tensors are on two
devices raises. That finds what a model leaves on the CPU: tensors in plain attributes, constants that are
made in each step.

The device is ``meta``. A build of torch for CPUs can make fake tensors on ``cuda:0``, but its autograd has no
such device and ends the process. What is on which device is the same; which kernels CUDA would choose is not
looked at.
"""

import sys
from types import MappingProxyType
from typing import Any

import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import ShapeEnv

from harness.loading.suite_files import load_suite, suite_names
from harness.schema import Case, Mode, Setting
from harness.tensors import map_tensors, named_tensors
from harness.workload import Workload
from tests.factories import Patch, make_job
from tests.worker.planted import case_of, mean_of, suite_that

EXCEPTIONS = MappingProxyType(
    {
        "huggingface AllenaiLongformerBase": "its step reads a mask, and fake tensors have no values",
        "huggingface DeBERTa_v3_base": "its loss reads which labels count",
        "huggingface Wav2Vec2_base": "its loss reads the largest label",
    }
)
"""Cases that cannot be traced with fake tensors, and why."""

PLACE = "meta"
LONGEST = 300


def cases(suite: str) -> tuple[Case, ...]:
    """The curated cases, tiny: of training, or of inference where a suite has no training."""
    for mode in (Mode.TRAINING, Mode.INFERENCE):
        curated = load_suite(suite).cases(Setting(mode=mode, device_type="cuda", scale="tiny"))
        if curated:
            return tuple(case for case in curated if not case.skip)
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


pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.mark.long
@pytest.mark.parametrize("suite", [name for name in suite_names() if name != "torchbench"])
def test_every_case_runs_on_another_device(suite: str, monkeypatch: Patch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    errors = {f"{suite} {case.name}": error_of(case) for case in cases(suite)}
    wrong = {name: error for name, error in errors.items() if error is not None}
    assert {name: error for name, error in wrong.items() if name not in EXCEPTIONS} == {}
    assert [name for name in EXCEPTIONS if name in errors and name not in wrong] == []


class Scaled(nn.Linear):
    """Its scale is a buffer, or kept in a plain attribute, or made in each step."""

    def __init__(self, how: str) -> None:
        super().__init__(4, 4)
        self.made = how == "made"
        if how == "buffer":
            self.register_buffer("scale", torch.ones(4))
        else:
            self.scale = torch.ones(4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x) * (torch.ones(4) if self.made else self.scale)


@pytest.mark.parametrize(("how", "wrong"), [("buffer", False), ("kept", True), ("made", True)])
def test_the_check_sees_what_stays_behind(monkeypatch: Patch, how: str, *, wrong: bool) -> None:
    def build() -> Workload:
        return Workload(module=Scaled(how), args=(torch.ones(2, 4),), loss=mean_of)

    monkeypatch.setattr(sys.modules[__name__], "load_suite", suite_that(build))
    error = str(error_of(make_job().case))
    says = "FakeTensorDeviceMismatchError: Expected all tensors to be on the same device"
    assert error.startswith(says if wrong else "None")


# -- seeds ----------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("suite", "name"),
    [
        *(("tiny_gpt", f"{kind}_addition") for kind in ("HuggingFaceGPT", "NanoGPT", "TLTransformer", "MLP")),
        ("timm_models", "lcnet_050"),
        ("huggingface", "ElectraForQuestionAnswering"),
    ],
)
@pytest.mark.series
def test_the_same_seed_gives_the_same_weights_and_inputs(suite: str, name: str) -> None:
    def tensors(seed: int) -> dict[str, torch.Tensor]:
        torch.manual_seed(seed)
        work = load_suite(suite).build(case_of(suite, name))
        given = named_tensors((work.args, dict(work.kwargs), work.target), "given")
        return {**dict(given), **dict(work.module.named_parameters())}

    first, again, other = tensors(0), tensors(0), tensors(1)
    assert all(torch.equal(first[key], again[key]) for key in first)
    differ = [key for key in first if not torch.equal(first[key], other[key])]
    assert any(key.startswith("given") for key in differ)
    assert any(not key.startswith("given") for key in differ)
