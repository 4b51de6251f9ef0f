"""The suite tiny_gpt as the runner sees it: its list of cases, and the script. No torch."""

import pytest

from harness.schema import Case, Mode, Setting
from suites import tiny_gpt

STUDY_B = {
    "HuggingFaceGPT_addition": (13_824, 2048),
    "NanoGPT_addition": (20_160, 2048),
    "TLTransformer_addition": (13_872, 2048),
    "MLP_addition": (14_608, 2048),
}
SHAKESPEARE_BATCH = {
    "NanoGPT_shakespeare_64": 2048,
    "NanoGPT_shakespeare_96": 2048,
    "TLTransformer_shakespeare_64": 1024,
    "TLTransformer_shakespeare_96": 1024,
    "MLP_shakespeare_16x256": 2048,
    "MLP_shakespeare_8x128": 2048,
    "MLP_shakespeare_16x64": 2048,
}
STEPS = (Mode.TRAINING, Mode.INFERENCE)
OURS = {"HuggingFaceGPT_shakespeare_64", "GPT_150k", "GPT2_124M"}


def offered(mode: Mode, scale: str) -> tuple[Case, ...]:
    return tiny_gpt.cases(Setting(mode=mode, device_type="cpu", scale=scale))


def test_full_scale_runs_the_published_batch() -> None:
    batches = {case.name: case.batch_size for case in offered(Mode.TRAINING, "full")}
    published = {name: batch for name, (_, batch) in STUDY_B.items()} | SHAKESPEARE_BATCH
    assert {name: batches[name] for name in published} == published
    assert set(batches) == {*STUDY_B, *SHAKESPEARE_BATCH, *OURS}


def test_gpt2_is_planned_at_less_than_full_scale_only_when_named() -> None:
    def on_request(scale: str) -> list[str]:
        return [case.name for case in offered(Mode.TRAINING, scale) if "on_request" in case.tags]

    assert on_request("small") == ["GPT2_124M"]
    assert on_request("full") == []


@pytest.mark.parametrize("name", list(tiny_gpt.entries()))
def test_every_entry_says_where_it_comes_from(name: str) -> None:
    entry = tiny_gpt.entries()[name]
    assert len(entry.source.split()) >= 2
    assert len(entry.cpu_batch_reason.split()) >= 5
    assert set(entry.cpu_batch) == {mode.value for mode in STEPS}
    assert entry.loss in ("last_symbol", "every_symbol")
    if name in OURS - {"GPT2_124M"}:
        assert "ours" in entry.source


def test_unknown_implementation_is_refused() -> None:
    with pytest.raises(LookupError, match="GPT9"):
        tiny_gpt.make_model("GPT9", {})
