"""The first word of a command: an action, nothing, or a request for the version."""

from __future__ import annotations

import pytest

from runner.cli.actions import with_flag
from runner.cli.main import main
from runner.store.invocation import version


@pytest.mark.parametrize(
    ("typed", "means"),
    [
        (["doctor"], ["--doctor"]),
        (["compare", "a", "list"], ["--compare", "a", "list"]),
        (["list-compilers", "--envs", "doctor"], ["--list-compilers", "--envs", "doctor"]),
        (["help"], ["--help"]),
        (["--suites", "list"], ["--suites", "list"]),
        (["measure"], ["measure"]),
        ([], []),
    ],
)
def test_an_action_may_be_the_first_word(typed: list[str], means: list[str]) -> None:
    assert with_flag(typed) == means


def test_nothing_typed_says_how_to_begin(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    said = capsys.readouterr().err
    assert said.startswith("error: say what to measure, for example: ")
    assert "--help" in said
    assert len(said.splitlines()) == 1


def test_the_version_is_that_of_the_project(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["version"])
    assert ended.value.code == 0
    assert capsys.readouterr().out == f"torchduet {version()}\n"
