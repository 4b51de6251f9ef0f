"""What the models of all suites have in common."""

from types import ModuleType

import pytest
import torch

from harness.schema import Mode, Setting
from harness.tensors import named_tensors
from suites import huggingface, timm_models, tiny_gpt


@pytest.mark.parametrize(
    ("suite", "name"),
    [
        *((tiny_gpt, f"{kind}_addition") for kind in ("HuggingFaceGPT", "NanoGPT", "TLTransformer", "MLP")),
        (timm_models, "lcnet_050"),
        (timm_models, "adv_inception_v3"),  # refuses a keyword at first
        (huggingface, "ElectraForQuestionAnswering"),
    ],
)
def test_the_same_seed_gives_the_same_weights_and_inputs(suite: ModuleType, name: str) -> None:
    setting = Setting(mode=Mode.TRAINING, device_type="cpu", scale="tiny")
    (case,) = (case for case in suite.cases(setting) if case.name == name)

    def tensors(seed: int) -> dict[str, torch.Tensor]:
        torch.manual_seed(seed)
        work = suite.build(case)
        given = named_tensors((work.args, dict(work.kwargs), work.target), "given")
        return {**dict(given), **dict(work.module.named_parameters())}

    first, again, other = tensors(0), tensors(0), tensors(1)
    assert all(torch.equal(first[key], again[key]) for key in first)
    differ = [key for key in first if not torch.equal(first[key], other[key])]
    assert any(key.startswith("given") for key in differ)
    assert any(not key.startswith("given") for key in differ)
