"""The suite huggingface as the runner sees it: its list, its sizes, its script. No torch."""

import pytest

from harness.schema import Case, Mode, Setting
from suites import huggingface

FIELD = """
AlbertForMaskedLM AlbertForQuestionAnswering AllenaiLongformerBase BartForCausalLM
BartForConditionalGeneration BertForMaskedLM BertForQuestionAnswering BlenderbotForCausalLM
BlenderbotForConditionalGeneration BlenderbotSmallForCausalLM BlenderbotSmallForConditionalGeneration
CamemBert DebertaForMaskedLM DebertaForQuestionAnswering DebertaV2ForMaskedLM DebertaV2ForQuestionAnswering
DistilBertForMaskedLM DistilBertForQuestionAnswering DistillGPT2 ElectraForCausalLM
ElectraForQuestionAnswering GPT2ForSequenceClassification GPTJForCausalLM GPTJForQuestionAnswering
GPTNeoForCausalLM GPTNeoForSequenceClassification GoogleFnet LayoutLMForMaskedLM
LayoutLMForSequenceClassification M2M100ForConditionalGeneration MBartForCausalLM
MBartForConditionalGeneration MT5ForConditionalGeneration MegatronBertForCausalLM
MegatronBertForQuestionAnswering MobileBertForMaskedLM MobileBertForQuestionAnswering OPTForCausalLM
PLBartForCausalLM PLBartForConditionalGeneration PegasusForCausalLM PegasusForConditionalGeneration
RobertaForCausalLM RobertaForQuestionAnswering Speech2Text2ForCausalLM T5ForConditionalGeneration T5Small
TrOCRForCausalLM XGLMForCausalLM XLNetLMHeadModel YituTechConvBert
""".split()  # noqa: SIM905 -- read at a glance

ENTRIES = huggingface.entries()
GONE = "Speech2Text2ForCausalLM"


def cases(scale: str = "full", mode: Mode = Mode.TRAINING, device_type: str = "cpu") -> dict[str, Case]:
    setting = Setting(mode=mode, device_type=device_type, scale=scale)
    return {case.name: case for case in huggingface.cases(setting)}


def test_the_fields_51_names_come_first() -> None:
    assert len(FIELD) == 51
    assert [name for name, entry in ENTRIES.items() if "field" in entry.tags] == FIELD
    assert list(ENTRIES)[:51] == FIELD


@pytest.mark.parametrize("name", list(ENTRIES))
def test_every_table_is_well_formed(name: str) -> None:
    entry = ENTRIES[name]
    assert len(entry.source.split()) >= 3
    assert entry.batch_source == ("the field's" if name in FIELD else "ours")
    assert entry.published_batch >= 1
    assert entry.published_batch & (entry.published_batch - 1) == 0
    assert set(entry.tags) <= {"field", "modern", "generate", "quick", "on_request"}
    assert bool(entry.gone) == (entry.parameters is None)
    assert entry.parameters is None or entry.parameters > 10_000
    assert entry.sequence is not None or name not in FIELD
    assert entry.checkpoint is None or entry.checkpoint.count("/") == 1
    if "config.json" not in entry.source and name in FIELD:
        assert set(entry.config) <= {"pad_token_id"}


@pytest.mark.parametrize("device_type", ["cpu", "cuda"])
def test_the_published_batch_runs_at_full_scale(device_type: str) -> None:
    full = cases(device_type=device_type)
    assert full["AlbertForMaskedLM"].batch_size == 8
    assert full["DistilBertForQuestionAnswering"].batch_size == 512


@pytest.mark.parametrize("name", list(ENTRIES))
def test_a_smaller_scale_never_reads_more(name: str) -> None:
    entry = ENTRIES[name]
    lengths = [entry.length(scale) or 0 for scale in ("tiny", "small", "full")]
    assert lengths == sorted(lengths)
    assert entry.batch("tiny") <= entry.batch("small") <= entry.batch("full")


def test_what_is_gone_stays_in_the_list_and_says_so() -> None:
    assert [name for name, case in cases().items() if case.skip] == [GONE]
    assert cases()[GONE].skip.startswith("gone: transformers 5.0 dropped Speech2Text2")


def test_giants_are_planned_at_full_scale_only_when_named() -> None:
    on_request = {name for name, case in cases().items() if "on_request" in case.tags}
    assert {"GPTJForCausalLM", "Qwen3_30B_A3B", "Mistral_7B"} <= on_request
    assert not {"Llama_3_2_1B", "BertForMaskedLM", GONE} & on_request
    for scale in ("small", "tiny"):
        assert {n for n, case in cases(scale).items() if "on_request" in case.tags} == {"Llama_2_7B"}
    assert cases()["Llama_2_7B"].tags.count("on_request") == 1


def test_generation_offers_those_that_write() -> None:
    full, tiny = cases(mode=Mode.GENERATE), cases("tiny", Mode.GENERATE)
    assert set(full) == set(tiny) == {name for name, entry in ENTRIES.items() if "generate" in entry.tags}
    assert {"Llama_3_2_1B", "Qwen3_0_6B", "Gemma2_2B", "Whisper_tiny"} <= set(full)
    llama = full["Llama_3_2_1B"]
    assert (llama.batch_size, llama.prompt_tokens, llama.new_tokens) == (1, 1000, 256)
    assert full["Whisper_tiny"].new_tokens == 256
    for case in tiny.values():
        assert (case.prompt_tokens or 0) <= 8
        assert case.new_tokens == 4
    assert cases()["Llama_3_2_1B"].new_tokens is None


def test_the_case_of_any_other_class() -> None:
    setting = Setting(mode=Mode.TRAINING, device_type="cpu", scale="small")
    case = huggingface.case_for("BertForTokenClassification", setting)
    assert (case.name, case.batch_size, case.published_batch_size, case.scale) == (
        "BertForTokenClassification",
        1,
        None,
        "small",
    )
    assert huggingface.case_for("BertForMaskedLM", setting) == cases("small")["BertForMaskedLM"]
