"""The suite tiny_gpt as the runner sees it: its list of cases, and the script. No torch."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from harness.schema import SCALES, Case, Mode, Setting
from suites import _direct, tiny_gpt

REPOSITORY = Path(tiny_gpt.__file__).resolve().parents[1]

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


@pytest.mark.parametrize("mode", STEPS)
@pytest.mark.parametrize("scale", SCALES)
def test_every_case_is_offered_once(mode: Mode, scale: str) -> None:
    names = [case.name for case in offered(mode, scale)]
    assert len(names) == len(set(names))
    assert set(names) == {*STUDY_B, *SHAKESPEARE_BATCH, *OURS}


def test_none_generates() -> None:
    assert offered(Mode.GENERATE, "small") == ()


@pytest.mark.parametrize("scale", SCALES)
def test_cases_carry_suite_mode_and_scale(scale: str) -> None:
    for case in offered(Mode.INFERENCE, scale):
        assert (case.suite, case.mode, case.scale) == ("tiny_gpt", Mode.INFERENCE, scale)


def test_full_scale_runs_the_published_batch() -> None:
    batches = {case.name: case.batch_size for case in offered(Mode.TRAINING, "full")}
    published = {name: batch for name, (_, batch) in STUDY_B.items()} | SHAKESPEARE_BATCH
    assert {name: batches[name] for name in published} == published
    for case in offered(Mode.TRAINING, "full"):
        assert case.batch_size == case.published_batch_size


@pytest.mark.parametrize("mode", STEPS)
@pytest.mark.parametrize("scale", ["small", "tiny"])
def test_a_cut_batch_is_a_power_of_two_and_never_above_the_published(mode: Mode, scale: str) -> None:
    for case in offered(mode, scale):
        assert case.batch_size is not None
        assert case.published_batch_size is not None
        assert 1 <= case.batch_size <= case.published_batch_size
        assert case.batch_size & (case.batch_size - 1) == 0, case.name


def test_gpt2_is_planned_at_less_than_full_scale_only_when_named() -> None:
    def on_request(scale: str) -> list[str]:
        return [case.name for case in offered(Mode.TRAINING, scale) if "on_request" in case.tags]

    assert on_request("small") == ["GPT2_124M"]
    assert on_request("full") == []


def test_quick_covers_a_transformer_and_the_mlp() -> None:
    quick = [case.name for case in offered(Mode.TRAINING, "small") if "quick" in case.tags]
    assert sorted(tiny_gpt.entries()[name].implementation for name in quick) == ["MLP", "NanoGPT"]


def test_parameter_counts_are_the_studys() -> None:
    for name, (parameters, _) in STUDY_B.items():
        assert tiny_gpt.entries()[name].parameters == parameters


@pytest.mark.parametrize("name", list(tiny_gpt.entries()))
def test_every_entry_says_where_it_comes_from(name: str) -> None:
    entry = tiny_gpt.entries()[name]
    assert len(entry.source.split()) >= 2
    assert len(entry.cpu_batch_reason.split()) >= 5
    assert set(entry.cpu_batch) == {mode.value for mode in STEPS}
    assert entry.loss in ("last_symbol", "every_symbol")
    if name in OURS - {"GPT2_124M"}:
        assert "ours" in entry.source


def test_listing_the_cases_imports_no_torch() -> None:
    program = (
        "import sys; from harness.schema import Mode, Setting; from suites import tiny_gpt;"
        "tiny_gpt.cases(Setting(mode=Mode.TRAINING, device_type='cpu', scale='small'));"
        "print([m for m in ('torch', 'transformers', 'numpy') if m in sys.modules])"
    )
    out = subprocess.run(
        [sys.executable, "-c", program], cwd=REPOSITORY, capture_output=True, text=True, check=True
    )
    assert out.stdout.strip() == "[]"


def test_unknown_implementation_is_refused() -> None:
    with pytest.raises(LookupError, match="GPT9"):
        tiny_gpt.make_model("GPT9", {})


def test_direct_command_names_the_suite() -> None:
    suites = REPOSITORY / "suites"
    command = _direct.command(str(suites / "tiny_gpt.py"), ["--training", "-n30"])
    expected = [sys.executable, str(REPOSITORY / "runner.py"), "--suites=tiny_gpt", "--training", "-n30"]
    assert command == expected
    assert _direct.command(str(suites / "big" / "__main__.py"), [])[2] == "--suites=big"


def test_direct_refuses_a_file_outside_suites(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="stray"):
        _direct.command(str(tmp_path / "stray.py"), [])


def test_the_suite_is_a_script_that_becomes_the_runner(tmp_path: Path) -> None:
    """Started in a foreign folder, with a runner that tells what it was given."""
    (tmp_path / "suites").mkdir()
    for name in ("__init__.py", "_direct.py", "tiny_gpt.py", "tiny_gpt.toml"):
        shutil.copy(REPOSITORY / "suites" / name, tmp_path / "suites" / name)
    (tmp_path / "runner.py").write_text("import json, sys; print(json.dumps(sys.argv)); sys.exit(3)\n")
    argv = ["--training", "--only", "NanoGPT_addition", "-n30", "a b;c"]
    done = subprocess.run(
        [sys.executable, str(tmp_path / "suites" / "tiny_gpt.py"), *argv],
        cwd="/",
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 3, done.stderr
    assert json.loads(done.stdout) == [str(tmp_path / "runner.py"), "--suites=tiny_gpt", *argv]
