"""What the lists of all suites have in common: names, modes, scales, batches, scripts. No torch."""

import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from harness.schema import SCALES, Case, Mode, Setting
from suites import _direct, huggingface, ops, timm_models, tiny_gpt

REPOSITORY = Path(__file__).parents[2]
STEPS = {
    huggingface: (Mode.TRAINING, Mode.INFERENCE, Mode.GENERATE),
    timm_models: (Mode.TRAINING, Mode.INFERENCE),
    tiny_gpt: (Mode.TRAINING, Mode.INFERENCE),
    ops: (Mode.INFERENCE,),
}
"""Each suite, and the modes that it has cases for."""


def cases(suite: ModuleType, mode: Mode, scale: str = "full", device_type: str = "cpu") -> tuple[Case, ...]:
    listed: tuple[Case, ...] = suite.cases(Setting(mode=mode, device_type=device_type, scale=scale))
    return listed


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("suite", STEPS)
def test_every_case_is_offered_once_with_a_batch_that_is_never_above_the_published(
    suite: ModuleType, scale: str
) -> None:
    name = suite.__name__.removeprefix("suites.")
    for mode in STEPS[suite]:
        offered = cases(suite, mode, scale)
        if mode is not Mode.GENERATE:
            assert [case.name for case in offered] == list(suite.entries())
        for case in offered:
            assert (case.suite, case.mode, case.scale) == (name, mode, scale)
            assert case.published_batch_size is not None
            assert 1 <= case.batch <= case.published_batch_size
            assert scale != "full" or case.batch == case.published_batch_size


@pytest.mark.parametrize("suite", STEPS)
def test_a_mode_that_a_suite_does_not_have_gives_no_case(suite: ModuleType) -> None:
    for mode in set(Mode) - set(STEPS[suite]):
        assert cases(suite, mode) == ()


@pytest.mark.parametrize("suite", STEPS)
def test_the_direct_command_names_the_suite(suite: ModuleType) -> None:
    name = suite.__name__.removeprefix("suites.")
    command = _direct.command(str(suite.__file__), ["--training", "-n30"])
    expected = [str(REPOSITORY / "runner.py"), f"--suites={name}", "--training", "-n30"]
    assert command == [sys.executable, *expected]


@pytest.mark.parametrize("suite", STEPS)
def test_a_suite_is_a_script_that_becomes_the_runner(suite: ModuleType) -> None:
    """Started in a foreign folder."""
    words = ["--list", "--inference", "--no-skip"]
    done = subprocess.run(
        [sys.executable, str(suite.__file__), *words], cwd="/", capture_output=True, text=True, check=True
    )
    assert len(done.stdout.splitlines()) >= len(suite.entries())


def test_words_reach_the_runner_as_they_were_typed() -> None:
    argv = [sys.executable, str(ops.__file__), "--list", "--inference", "--only", "a b;c"]
    wrong = subprocess.run(argv, cwd="/", capture_output=True, text=True, check=False)
    assert (wrong.returncode, "'a b;c'" in wrong.stderr) == (2, True), wrong.stderr
