"""Compilers that take a whole model ahead of time, and other projects': each for real, where it is here."""

import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils import _pytree as pytree

from harness.backends import backend_of, load_backend, why_unavailable
from harness.backends.shared.captured import FlatModule, Shape
from harness.parity.rule import Judgment, judge
from harness.schema import Mode
from tests.factories import Patch
from tests.worker.planted import Trial, inference, results, trial

# torch.export, torchao and ONNX's exporter warn of their own affairs
pytestmark = [pytest.mark.usefixtures("fresh_compiler"), pytest.mark.filterwarnings("ignore")]

long = pytest.mark.long
AHEAD = ("export", "onnxrt", pytest.param("openvino", marks=long), pytest.param("tvm", marks=long))

REFUSED = (
    *(("onnxrt", dtype) for dtype in ("bfloat16", "amp")),
    *(("tvm", dtype) for dtype in ("float16", "bfloat16", "amp")),
)


def needs(name: str) -> None:
    why = why_unavailable(name, "cpu")
    if why is not None:
        pytest.skip(why)


def judged(name: str, subject: Trial, **options: Any) -> list[Judgment]:
    """The tensors beyond a limit, of one candidate, which must prove its work."""
    needs(name)
    variant, compiled = subject.compiled(load_backend(name), **options)
    assert compiled.compiler_calls() == 0  # the capture is made at the first call
    judgments = subject.wrong(variant)
    assert compiled.compiler_calls() == 1
    assert compiled.region == "forward"
    assert [judgment.name for judgment in subject.wrong(variant)] == [judgment.name for judgment in judgments]
    return judgments


@pytest.mark.parametrize("name", AHEAD)
@pytest.mark.parametrize("model", ["mlp", "conv", "tokens"])
def test_it_computes_what_eager_does(name: str, model: str) -> None:
    assert judged(name, trial(model, mode=Mode.INFERENCE)) == []


@long
@pytest.mark.parametrize("model", ["mlp", "tokens"])
def test_aot_inductor_is_right_and_leaves_no_files(model: str, tmp_path: Path, monkeypatch: Patch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    assert judged("aot_inductor", trial(model, mode=Mode.INFERENCE)) == []
    assert not list(tmp_path.glob("torchduet-*"))


@pytest.mark.parametrize("name", AHEAD)
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "amp"])
def test_it_keeps_to_the_precision(name: str, dtype: str) -> None:
    if (name, dtype) in REFUSED:
        pytest.skip("it cannot compute in that, and says so")
    assert judged(name, trial("mlp", dtype=dtype, mode=Mode.INFERENCE)) == []


@dataclass
class Both:
    value: torch.Tensor
    label: str
    more: torch.Tensor


pytree.register_dataclass(Both)


class Structured(nn.Module):
    """Takes inputs by position and by name, and gives back tensors and words in a structure."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor, pair: tuple[torch.Tensor, int], shift: torch.Tensor) -> dict[str, Any]:
        y = self.linear(x) * pair[1] + pair[0]
        return {"both": Both(y + shift, "words", y - shift), "none": None, "list": [y, 3]}


@pytest.mark.parametrize("name", AHEAD)
def test_inputs_and_outputs_keep_their_structure(name: str) -> None:
    torch.manual_seed(0)
    subject = inference(Structured(), torch.randn(3, 4), pair=(torch.randn(3, 4), 2), shift=torch.randn(3, 4))
    assert judged(name, subject) == []
    assert len(subject.truth().eager) == 3


@pytest.mark.parametrize("option", ["dynamic_shapes", "dynamic_batch"])
@pytest.mark.parametrize("name", ["export", "onnxrt", "openvino"])
def test_a_step_of_several_batches_is_one_capture(name: str, option: str) -> None:
    """The first batch of the step is a smaller one, of tensors of its own."""
    assert judged(name, inference(nn.Linear(8, 4), torch.randn(6, 8)), **{option: True}) == []


@pytest.mark.parametrize(
    "name", ["export", "aot_inductor", "onnxrt", "openvino", "tvm", "torchao_int8_dynamic"]
)
def test_training_is_refused(name: str) -> None:
    needs(name)
    assert backend_of(name).modes == ("inference",)
    with pytest.raises(ValueError, match=f"{name} compiles inference only"):
        load_backend(name)(trial("mlp").variant().program)


def test_what_cannot_cross_over_is_refused_and_not_taken_from_an_earlier_run() -> None:
    @dataclass
    class Unregistered:
        value: torch.Tensor

    with pytest.raises(TypeError, match="output has tensors in a Unregistered"):
        Shape().take((torch.ones(1), Unregistered(torch.ones(1))), "output")
    assert len(Shape().take((torch.ones(1), 3, "x", None), "output")) == 1


def test_inputs_of_another_size_are_refused() -> None:
    flat = FlatModule(nn.Linear(4, 4), (torch.ones(2, 4),), {})
    call = flat.around(lambda tensors: tensors, 1)
    with pytest.raises(RuntimeError, match="the compiled model takes 2 inputs, the model 1"):
        flat.around(lambda tensors: tensors, 2)
    with pytest.raises(ValueError, match="inputs of other sizes"):
        call(torch.ones(3, 4))


@long
@pytest.mark.parametrize("name", ["torchao_int8_weight_only", "torchao_int8_dynamic"])
@pytest.mark.parametrize("model", ["mlp", "tokens"])
def test_int8_is_near_eager_and_says_that_it_is_approximate(name: str, model: str) -> None:
    needs(name)
    subject = trial(model, mode=Mode.INFERENCE)
    variant, compiled = subject.compiled(load_backend(name))
    assert 0.0 < judge(subject.truth(), "output", results(variant)["output"], 1).error.size < 0.02
    assert compiled.approximate
    assert compiled.compiler_calls() == 1
    assert "weights quantized" in compiled.notes[-1]
    assert 0 < variant.persistent_bytes() < 0.6 * subject.variant().persistent_bytes()


@long
@pytest.mark.parametrize(
    ("name", "mode"),
    [
        ("inductor_reduce_overhead", Mode.INFERENCE),
        ("inductor_max_autotune_no_cudagraphs", Mode.INFERENCE),
        ("inductor_max_autotune", Mode.INFERENCE),
        ("inductor_no_cudagraphs", Mode.TRAINING),
        ("inductor_compiled_autograd", Mode.TRAINING),
        ("inductor_regional", Mode.TRAINING),
        ("inductor_regional", Mode.INFERENCE),
    ],
)
def test_inductors_variants_compute_what_eager_does(name: str, mode: Mode) -> None:
    subject = trial("tokens", mode=mode)
    variant, compiled = subject.compiled(load_backend(name))
    assert subject.wrong(variant) == []
    assert compiled.compiler_calls() > 0
    whole = "forward+loss" if mode is Mode.TRAINING else "forward"
    assert compiled.region == ("submodules" if "regional" in name else whole)
