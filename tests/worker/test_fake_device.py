"""Models of all suites: none leaves a tensor on the CPU (``fake_device``), and a seed decides all."""

from types import MappingProxyType

import pytest
import torch
from torch import nn

from harness.loading.suite_files import load_suite, suite_names
from harness.tensors import named_tensors
from harness.workload import Workload
from tests.factories import Patch, make_job
from tests.worker import fake_device
from tests.worker.planted import case_of, mean_of, suite_that

EXCEPTIONS = MappingProxyType(
    {
        "huggingface AllenaiLongformerBase": "its step reads a mask, and fake tensors have no values",
        "huggingface DeBERTa_v3_base": "its loss reads which labels count",
        "huggingface Wav2Vec2_base": "its loss reads the largest label",
    }
)
"""Cases that cannot be traced with fake tensors, and why."""

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.mark.long
@pytest.mark.parametrize("suite", [name for name in suite_names() if name != "torchbench"])
def test_every_case_runs_on_another_device(suite: str, monkeypatch: Patch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    errors = {f"{suite} {case.name}": fake_device.error_of(case) for case in fake_device.cases_of(suite)}
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

    monkeypatch.setattr(fake_device, "load_suite", suite_that(build))
    error = str(fake_device.error_of(make_job().case))
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
