"""The models of suite huggingface: their sizes, their inputs, their losses, and models found by name."""

from __future__ import annotations

import copy
import dataclasses
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any
from unittest.mock import Mock

import pytest
import torch
from torch import nn

from harness.loading.dropout import KEPT_DROPOUT
from harness.schema import Case, Mode, Setting
from suites import huggingface
from suites.models.entries import Entry
from suites.models.huggingface_inputs import inputs_for, own_loss
from suites.models.huggingface_names import model_class, model_class_names
from suites.models.words import value_of
from tests.factories import Patch, known, make_job, sampled
from tests.worker.planted import trainable

if TYPE_CHECKING:
    from harness.workload import Workload

ENTRIES = huggingface.entries()
LIVING = [name for name, entry in ENTRIES.items() if not entry.gone]

pytestmark = pytest.mark.filterwarnings("ignore")  # what transformers warns of is no concern of these


@pytest.fixture(autouse=True)
def _no_network(monkeypatch: Patch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")


def case_of(name: str, scale: str = "tiny", mode: Mode = Mode.TRAINING, **changes: Any) -> Case:
    case = huggingface.case_for(name, Setting(mode=mode, device_type="cpu", scale=scale))
    return dataclasses.replace(case, **changes)


def on_meta(name: str, scale: str = "tiny", **changes: Any) -> Workload:
    with torch.device("meta"):
        return huggingface.build(case_of(name, scale, **changes))


def config_of(name: str, scale: str = "tiny", **changes: Any) -> Any:
    return on_meta(name, scale, **changes).module.config


@pytest.mark.parametrize("name", sampled(16, LIVING))
def test_it_is_as_large_as_its_table_says(name: str) -> None:
    full, small = on_meta(name, "full"), on_meta(name, "small")
    entry = ENTRIES[name]
    assert trainable(full.module) == case_of(name, "full").parameters
    assert trainable(small.module) == known(case_of(name, "small").parameters) < 150_000_000
    for given, scale in ((full, "full"), (small, "small")):
        tensors = {key: value for key, value in given.kwargs.items() if isinstance(value, torch.Tensor)}
        assert {tensor.shape[0] for tensor in tensors.values()} == {huggingface.batch(entry, scale)}
        if "input_ids" in tensors:
            assert tensors["input_ids"].shape[1] == huggingface.length(entry, scale)
    rates = {part.p for part in small.module.modules() if isinstance(part, nn.Dropout)}
    assert rates <= {0.0, KEPT_DROPOUT}


STEPPING = ("ElectraForQuestionAnswering", "BartForConditionalGeneration", "Whisper_tiny", "MiniLM_L6")


@pytest.mark.parametrize("name", [*STEPPING, "Gemma3_270M"])
def test_one_step(name: str) -> None:
    torch.manual_seed(0)
    given = huggingface.build(case_of(name))
    assert given.loss is own_loss
    module = copy.deepcopy(given.module).train()
    output = module(**given.kwargs)
    assert getattr(output, "past_key_values", None) is None
    loss = own_loss(output, given.target)
    loss.backward()  # type: ignore[no-untyped-call]
    assert torch.isfinite(loss)
    gradients = [p.grad for p in module.parameters() if p.grad is not None]
    assert sum(float(gradient.abs().sum()) for gradient in gradients) > 1e-3
    again = own_loss(given.module.train()(**given.kwargs), None)
    assert torch.equal(loss, again)  # dropout is there, and drops nothing
    with torch.no_grad():
        torch.testing.assert_close(own_loss(given.module.eval()(**given.kwargs), None), loss)


def test_inputs_are_the_fields() -> None:
    def inputs(name: str) -> dict[str, Any]:
        return dict(huggingface.build(case_of(name, batch_size=3)).kwargs)

    assert set(inputs("BertForMaskedLM")) == {"input_ids", "labels"}
    assert set(inputs("BertForQuestionAnswering")) == {"input_ids", "start_positions", "end_positions"}
    assert set(inputs("T5Small")) == {"input_ids", "decoder_input_ids", "labels"}
    assert inputs("LayoutLMForSequenceClassification")["labels"].shape == (3,)
    roberta = inputs("RobertaForQuestionAnswering")["input_ids"]
    assert not roberta[:, 0].any()  # padding: the default configuration has no positions for 512 others
    assert all(row.unique().numel() > 1 for row in roberta)  # positions differ, else gradients are zero
    eos = config_of("BartForCausalLM").eos_token_id
    assert torch.equal(inputs("BartForCausalLM")["input_ids"] == eos, torch.arange(16).expand(3, 16) == 15)


class HeardForXVector:
    """A model that tells speakers apart, as far as its inputs follow from it."""

    main_input_name = "input_values"
    config = SimpleNamespace(is_encoder_decoder=False, tdnn_kernel=(5, 3), tdnn_dilation=(1, 2))

    def forward(self, input_values: torch.Tensor) -> None: ...


def test_a_model_that_looks_at_frames_around_each_hears_enough_of_them() -> None:
    shapes = [inputs_for(HeardForXVector(), 2, length)["input_values"].shape for length in (128, 80_000)]
    assert shapes == [(2, 3200 + 8 * 320), (2, 80_000)]


def test_changes_to_the_configuration() -> None:
    config = config_of("BertForMaskedLM", config=("num_hidden_layers=3", "hidden_act=relu"))
    assert (config.num_hidden_layers, config.hidden_act) == (3, "relu")
    clip = config_of("CLIP_ViT_B32", config=("text_config.num_hidden_layers=2",))
    assert (clip.text_config.num_hidden_layers, clip.vision_config.num_hidden_layers) == (2, 1)
    assert config_of("DistillGPT2", config=("num_hidden_layers=3",)).n_layer == 3
    assert config_of("DistillGPT2", config=("resid_pdrop=0.5",)).resid_pdrop == KEPT_DROPOUT
    assert [*map(value_of, ("True", "none", "1e-3", "gelu", "[1, 2]"))] == [True, None, 1e-3, "gelu", [1, 2]]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ("num_hidden_layer=3", "no key 'num_hidden_layer'; the closest: num_hidden_layers"),
        ("hidden_size.x=3", "what is before 'x' has no keys"),
        ("hidden_size", "written key=value"),
    ],
)
def test_a_change_that_cannot_be(change: str, words: str) -> None:
    with pytest.raises(LookupError, match=words):
        on_meta("BertForMaskedLM", config=(change,))


def test_find() -> None:
    assert huggingface.find("BertForTokenClassification") == ("BertForTokenClassification",)
    causal = huggingface.find("*ForCausalLM")
    assert len(causal) > 100
    assert {"LlamaForCausalLM", "GPTJForCausalLM"} <= set(causal)
    assert not {"AutoModel", "BertTokenizer", "BertConfig", "BertPreTrainedModel"} & set(model_class_names())


def test_published_weights_are_asked_for_in_vain() -> None:
    with pytest.raises(ValueError, match="no published weights are known for DebertaForMaskedLM"):
        on_meta("DebertaForMaskedLM", "full", pretrained=True)
    with pytest.raises(ValueError, match="at full scale only"):
        on_meta("DistillGPT2", pretrained=True)


def test_published_weights_need_a_network(monkeypatch: Patch) -> None:
    refused = Mock(side_effect=OSError("no route\nand a long story"))
    monkeypatch.setattr(model_class("GPT2LMHeadModel"), "from_pretrained", refused)
    sentence = r"^--pretrained: cannot load distilbert/distilgpt2 \(no network\?\): no route$"
    with pytest.raises(OSError, match=sentence):
        on_meta("DistillGPT2", "full", pretrained=True)


@pytest.mark.parametrize(("config", "name"), [({"dtype": None}, "dtype"), ({}, "torch_dtype")])
def test_an_old_library_too_loads_weights_in_float32(config: dict[str, object], name: str) -> None:
    entry = Entry(checkpoint="a/b")
    loaded, given = Mock(), SimpleNamespace(**config)
    huggingface._load(loaded, given, entry, make_job(scale="full").case)
    loaded.from_pretrained.assert_called_once_with("a/b", config=given, **{name: torch.float32})
