"""No curated model leaves a tensor on the CPU: see ``tests.worker.fake_device``."""

from types import MappingProxyType

import pytest
import torch
from torch import nn

from harness.loading.suite_files import suite_names
from harness.schema import Case, Mode
from harness.workload import Workload
from tests.worker import fake_device

EXCEPTIONS = MappingProxyType(
    {
        "ops copy_transpose": "checks that its result has storage of its own, which fake tensors do not have",
        "ops copy_slice": "the same",
        "ops copy_clone": "the same",
        "huggingface AllenaiLongformerBase": "its step reads a mask, and fake tensors have no values",
        "huggingface DeBERTa_v3_base": "its loss reads which labels count",
        "huggingface Wav2Vec2_base": "its loss reads the largest label",
    }
)
"""Cases that cannot be traced with fake tensors, and why."""

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.mark.long
@pytest.mark.parametrize("suite", suite_names())
def test_every_case_runs_on_another_device(suite: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    found = {f"{suite} {case.name}": fake_device.error_of(case) for case in fake_device.cases_of(suite)}
    wrong = {name: error for name, error in found.items() if error is not None}
    assert {name: error for name, error in wrong.items() if name not in EXCEPTIONS} == {}
    assert [name for name in EXCEPTIONS if name in found and name not in wrong] == []


class Plain(nn.Module):
    """Keeps a tensor in a plain attribute (``how`` = "kept"), or makes one in its step ("made")."""

    def __init__(self, how: str) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.how = how
        self.scale = torch.ones(4)
        if how == "buffer":
            del self.scale
            self.register_buffer("scale", torch.ones(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        scale = torch.ones(4) if self.how == "made" else self.scale
        found: torch.Tensor = self.linear(x) * scale
        return found.cpu() if self.how == "returned" else found


@pytest.mark.parametrize(
    ("how", "expected"),
    [
        ("buffer", None),
        ("kept", "FakeTensorDeviceMismatchError: Expected all tensors to be on the same device"),
        ("made", "FakeTensorDeviceMismatchError: Expected all tensors to be on the same device"),
    ],
)
def test_the_check_sees_what_stays_on_the_cpu(
    monkeypatch: pytest.MonkeyPatch, how: str, expected: str | None
) -> None:
    class Suite:
        def build(self, case: Case) -> Workload:
            return Workload(module=Plain(how), args=(torch.ones(2, 4),), loss=lambda out, _: out.mean())

    monkeypatch.setattr(fake_device, "load_suite", lambda _: Suite())
    case = Case(suite="s", name="m", mode=Mode.TRAINING, batch_size=2, published_batch_size=2)
    error = fake_device.error_of(case)
    assert error == expected or (expected is not None and str(error).startswith(expected))
