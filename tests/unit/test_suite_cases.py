"""The suites as the runner sees them: their lists of cases, and their scripts. No torch."""

import dataclasses
import math
import os
import re
import runpy
import sys
from collections import Counter
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from harness.schema import SCALES, Case, Mode, Setting
from runner.analysis.results import OPERATION
from runner.cli.main import main
from suites import huggingface, ops, timm_models, tiny_gpt, torchbench
from suites.models.entries import Entry
from tests.command_line import ran
from tests.factories import Capture, Patch
from tests.suites.checkout import MODELS, made_up

REPOSITORY = Path(__file__).parents[2]
STEPS = {
    huggingface: (Mode.TRAINING, Mode.INFERENCE, Mode.GENERATE),
    timm_models: (Mode.TRAINING, Mode.INFERENCE),
    tiny_gpt: (Mode.TRAINING, Mode.INFERENCE),
    ops: (Mode.TRAINING, Mode.INFERENCE),
}
"""Each suite, and the modes that it has cases for."""


def setting(mode: Mode = Mode.TRAINING, scale: str = "full") -> Setting:
    return Setting(mode=mode, device_type="cpu", scale=scale)


def named(suite: ModuleType, *how: Any) -> dict[str, Case]:
    return {case.name: case for case in suite.cases(setting(*how))}


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("suite", STEPS)
def test_every_case_is_offered_once_with_at_most_the_published_batch(suite: ModuleType, scale: str) -> None:
    name = suite.__name__.removeprefix("suites.")
    for mode in Mode:
        offered = suite.cases(setting(mode, scale))
        assert bool(offered) == (mode in STEPS[suite])
        if offered and mode is not Mode.GENERATE:
            expected = list(suite.entries())
            if suite is ops and mode is Mode.TRAINING:
                expected = [name for name in expected if not re.match("view|copy|.*_int8", name)]
            assert [case.name for case in offered] == expected
        for case in offered:
            assert (case.suite, case.mode, case.scale) == (name, mode, scale)
            assert (OPERATION in case.tags) == (suite is ops)
            assert case.published_batch_size is not None
            assert 1 <= case.batch <= case.published_batch_size
            counted = suite is tiny_gpt or (suite is not ops and scale != "tiny" and not case.skip)
            assert bool(case.parameters) == counted
            assert scale != "full" or case.batch == case.published_batch_size


@pytest.mark.parametrize("suite", STEPS)
def test_a_suite_is_a_script_that_becomes_the_runner(suite: ModuleType, monkeypatch: Patch) -> None:
    script, started = str(suite.__file__), list[list[str]]()
    monkeypatch.syspath_prepend(Path(script).parent)  # as Python does for a script
    monkeypatch.setattr(sys, "argv", [script, "--training", "-n30"])
    monkeypatch.setattr(os, "execv", lambda _, command: started.append(command))
    runpy.run_path(script, run_name="__main__")
    name = suite.__name__.removeprefix("suites.")
    assert started == [
        [sys.executable, str(REPOSITORY / "runner.py"), f"--suites={name}", "--training", "-n30"]
    ]


def test_words_reach_the_runner_as_they_were_typed() -> None:
    """Started in a foreign folder."""
    wrong = ran(sys.executable, str(ops.__file__), "--list", "--inference", "--only", "a b;c", cwd="/")
    assert (wrong.returncode, "'a b;c'" in wrong.stderr) == (2, True), wrong.stderr


# -- ops ------------------------------------------------------------
PRODUCTS = ("matmul", "attention", "convolution")
L3_BYTES = 32 * 2**20  # of the processor whose runs are committed


@pytest.mark.parametrize("name", list(ops.entries()))
def test_every_operation_has_a_purpose_and_scales_that_fall_to_what_caches_do_not_hold(name: str) -> None:
    entry = ops.entries()[name]
    assert len(entry.source.split()) >= 4
    kind = name.partition("_")[0]
    assert entry.shares is (kind == "view" if kind in ("view", "copy") else None)
    full, small, tiny = (math.prod(entry.sizes[scale]) for scale in ("full", "small", "tiny"))
    assert full > small > tiny
    assert len(entry.sizes["full"]) == (4 if name == "matmul_batched" else len(entry.sizes["small"]))
    if not name.startswith(PRODUCTS):
        assert 4 * small > L3_BYTES


# -- tiny gpt ------------------------------------------------------------
OURS = {"HuggingFaceGPT_shakespeare_64", "GPT_150k", "GPT2_124M"}


def test_gpt2_is_planned_at_less_than_full_scale_only_when_named() -> None:
    for scale, asked in (("small", ["GPT2_124M"]), ("full", [])):
        offered = named(tiny_gpt, Mode.TRAINING, scale)
        assert [name for name, case in offered.items() if "on_request" in case.tags] == asked


@pytest.mark.parametrize("name", list(tiny_gpt.entries()))
def test_every_entry_says_where_it_comes_from(name: str) -> None:
    entry = tiny_gpt.entries()[name]
    assert len(entry.source.split()) >= 2
    assert len(entry.cpu_batch_reason.split()) >= 5
    assert set(entry.cpu_batch) == {mode.value for mode in STEPS[tiny_gpt]}
    assert entry.loss in ("last_symbol", "every_symbol")
    if name in OURS - {"GPT2_124M"}:
        assert "ours" in entry.source


def test_unknown_implementation_is_refused() -> None:
    with pytest.raises(LookupError, match="GPT9"):
        tiny_gpt.make_model("GPT9", {})


# -- timm ------------------------------------------------------------
RENAMED = {"adv_inception_v3", "gluon_inception_v3", "jx_nest_base", "swsl_resnext101_32x16d"}


def test_the_fields_61_models_have_their_published_batches() -> None:
    """Images in a step on a 40 GB A100, and for how many models."""
    field = [entry.published_batch for entry in timm_models.entries().values() if "modern" not in entry.tags]
    assert dict(Counter(field)) == {4: 1, 16: 1, 32: 1, 64: 5, 128: 41, 256: 6, 512: 4, 1024: 2}


@pytest.mark.parametrize("name", list(timm_models.entries()))
def test_every_table_of_timm_is_well_formed(name: str) -> None:
    entry = timm_models.entries()[name]
    assert entry.parameters > 1_000_000
    assert 128 <= entry.resolution <= 640
    assert bool(entry.architecture) == bool(entry.architecture_reason) == (name in RENAMED)
    assert set(entry.tags) <= {"quick", "modern", "on_request"}
    modes = {mode.value for mode in Mode}
    assert set(entry.skip) <= modes
    assert set(entry.tolerance) <= modes
    assert bool(entry.tolerance) == bool(entry.tolerance_reason)
    assert "batch" not in entry.config
    for cut in (entry.small, entry.tiny):
        assert cut.get("resolution", 1) < entry.resolution
        assert 1 <= cut.get("batch", 2) <= 4


def entry_of(**changes: object) -> Entry:
    return dataclasses.replace(timm_models.entries()["lcnet_050"], **changes)  # type: ignore[arg-type]


def test_a_skip_and_a_tolerance_hold_in_their_mode_and_what_timm_dropped_in_both(monkeypatch: Patch) -> None:
    entries = {
        "skipped": entry_of(skip={"training": "it never converges"}),
        "loose": entry_of(tolerance={"training": 0.04}, tolerance_reason="measured"),
        "lost": entry_of(gone="timm 9.9 removed it"),
    }
    monkeypatch.setattr(timm_models, "entries", lambda: entries)
    training, inference = named(timm_models), named(timm_models, Mode.INFERENCE)
    assert (training["skipped"].skip, training["loose"].tolerance) == ("it never converges", 0.04)
    assert training["loose"].skip == inference["skipped"].skip == ""
    assert inference["loose"].tolerance is training["skipped"].tolerance is None
    assert training["lost"].skip == inference["lost"].skip == "timm 9.9 removed it"


def test_tiny_starts_from_small_but_for_its_batch() -> None:
    entry = entry_of(small={"depth": 4, "width": 8, "batch": 4}, tiny={"depth": 1})
    assert (timm_models.cuts(entry, "full"), timm_models.cuts(entry, "small")) == (
        {},
        {"depth": 4, "width": 8},
    )
    assert timm_models.cuts(entry, "tiny") == {"depth": 1, "width": 8}
    assert [timm_models.batch_size(entry, scale) for scale in ("small", "tiny")] == [4, 2]


# -- huggingface ------------------------------------------------------------
ENTRIES = huggingface.entries()
GONE = "Speech2Text2ForCausalLM"


def test_the_fields_51_names_come_first() -> None:
    assert ["field" in entry.tags for entry in ENTRIES.values()] == [n < 51 for n in range(len(ENTRIES))]


@pytest.mark.parametrize("name", list(ENTRIES))
def test_every_table_of_huggingface_is_well_formed(name: str) -> None:
    entry = ENTRIES[name]
    assert len(entry.source.split()) >= 3 or bool(entry.config) <= bool(entry.checkpoint)
    assert entry.published_batch & (entry.published_batch - 1) == 0
    assert set(entry.tags) <= {"field", "modern", "generate", "quick", "on_request"}
    assert {*entry.small, *entry.tiny} <= {"batch", "sequence", "config"}
    assert bool(entry.gone) == (entry.parameters == 0)
    assert entry.gone or entry.parameters > 10_000
    assert entry.sequence is not None or "field" not in entry.tags
    assert entry.checkpoint is None or entry.checkpoint.count("/") == 1
    if entry.source and "config.json" not in entry.source and "field" in entry.tags:
        assert set(entry.config) <= {"pad_token_id"}


@pytest.mark.parametrize("name", list(ENTRIES))
def test_a_smaller_scale_never_reads_more(name: str) -> None:
    entry = ENTRIES[name]
    lengths = [huggingface.length(entry, scale) or 0 for scale in ("tiny", "small", "full")]
    assert lengths == sorted(lengths)
    batches = [huggingface.batch(entry, scale) for scale in ("tiny", "small", "full")]
    assert batches == sorted(batches)


def test_what_is_gone_stays_in_the_list_and_says_so() -> None:
    ((name, skip),) = ((name, case.skip) for name, case in named(huggingface).items() if case.skip)
    assert name == GONE
    assert skip.startswith("gone: transformers 5.0 dropped Speech2Text2")


def test_giants_are_planned_at_full_scale_only_when_named() -> None:
    full = named(huggingface)
    on_request = {name for name, case in full.items() if "on_request" in case.tags}
    assert {"GPTJForCausalLM", "Qwen3_30B_A3B", "Mistral_7B"} <= on_request
    assert not {"Llama_3_2_1B", "BertForMaskedLM", GONE} & on_request
    for scale in ("small", "tiny"):
        cut = named(huggingface, Mode.TRAINING, scale)
        assert {name for name, case in cut.items() if "on_request" in case.tags} == {"Llama_2_7B"}
    assert full["Llama_2_7B"].tags.count("on_request") == 1


def test_generation_offers_those_that_write() -> None:
    full, tiny = (named(huggingface, Mode.GENERATE, scale) for scale in ("full", "tiny"))
    assert set(full) == set(tiny) == {name for name, entry in ENTRIES.items() if "generate" in entry.tags}
    llama = full["Llama_3_2_1B"]
    assert (llama.batch_size, llama.prompt_tokens, llama.new_tokens) == (1, 1000, 256)
    for case in tiny.values():
        assert (case.prompt_tokens or 0) <= 8
        assert case.new_tokens == 4
    assert named(huggingface)["Llama_3_2_1B"].new_tokens is None


@pytest.mark.parametrize(
    ("suite", "name", "batches"),
    [(huggingface, "BertForTokenClassification", (1, 1)), (timm_models, "resnet18", (16, 2))],
)
def test_a_model_asked_for_by_name_has_no_published_batch(
    suite: ModuleType, name: str, batches: tuple[int, int]
) -> None:
    full, small = (suite.case_for(name, setting(Mode.TRAINING, scale)) for scale in ("full", "small"))
    assert (full.batch_size, small.batch_size) == batches
    assert full.published_batch_size is small.published_batch_size is full.parameters is None
    assert (small.suite, small.name, small.scale) == (suite.__name__.removeprefix("suites."), name, "small")


# -- torchbench ------------------------------------------------------------
def in_checkout(folder: Path, *how: Any) -> Mapping[str, Case]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "path", [str(made_up(folder)), *sys.path])
        return named(torchbench, *how)


def test_every_folder_with_code_is_a_model(tmp_path: Path) -> None:
    models = in_checkout(tmp_path)
    assert (list(models), models["linear"].suite) == (sorted(MODELS), "torchbench")
    assert in_checkout(tmp_path, Mode.GENERATE) == {}


@pytest.mark.parametrize(
    ("mode", "scale", "runs", "published"),
    [
        *((Mode.TRAINING, "full", 64, 64), (Mode.INFERENCE, "full", 128, 128)),
        *((Mode.INFERENCE, "small", 4, 128), (Mode.TRAINING, "tiny", 2, 64)),
    ],
)
def test_batches_are_the_class_s(tmp_path: Path, mode: Mode, scale: str, runs: int, published: int) -> None:
    case = in_checkout(tmp_path, mode, scale)["linear"]
    assert (case.batch_size, case.published_batch_size) == (runs, published)


def test_a_size_that_cannot_be_changed_or_is_not_stated_is_the_models_own(tmp_path: Path) -> None:
    own, unstated = (in_checkout(tmp_path)[name] for name in ("own_size", "without_a_model"))
    assert (own.batch_size, own.published_batch_size) == (None, 64)
    assert (unstated.batch_size, unstated.published_batch_size) == (None, None)
    assert torchbench.published_batch("yolov3", "training", "    DEFAULT_TRAIN_BSIZE = 16\n") == 8


def test_what_pytorchs_harness_leaves_out_is_skipped_with_the_reason(tmp_path: Path) -> None:
    assert in_checkout(tmp_path)["hf_GPT2"].skip == "PyTorch's harness leaves it to suite huggingface"
    assert in_checkout(tmp_path)["linear"].skip == ""
    tables = torchbench.facts()
    assert all(len(reason) > 10 for table in tables if table.startswith("skip") for reason in tables[table])


@pytest.mark.skipif(find_spec("torchbenchmark") is not None, reason="torchbenchmark is installed")
def test_without_a_checkout_one_sentence_says_what_to_do(capsys: Capture) -> None:
    assert main(["--list", "--suites=torchbench"]) == 2
    assert "name it in PYTHONPATH, or install" in capsys.readouterr().err
