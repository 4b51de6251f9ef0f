"""The first word of a command: an action, nothing, or a request for the version."""

from __future__ import annotations

import re
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from harness.schema import Scalar
from runner.analysis.derive import summarize
from runner.cli.actions import with_flag
from runner.cli.main import main
from runner.reports import markdown
from runner.store.invocation import commit_of, program_facts, version
from tests.factories import make_job, make_record


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


def test_records_name_the_program_that_measured(tmp_path: Path) -> None:
    assert program_facts()["torchduet_version"] == version()
    assert commit_of(tmp_path) == ""  # not a checkout
    git = ("git", "-C", str(tmp_path), "-c", "user.name=x", "-c", "user.email=x@example.org")
    (tmp_path / "file").write_text("1")
    for words in (("init", "-q"), ("add", "."), ("commit", "-q", "-m", "x")):
        subprocess.run([*git, *words], check=True)
    commit = commit_of(tmp_path)
    assert re.fullmatch("[0-9a-f]{12}", commit)
    (tmp_path / "file").write_text("2")
    assert commit_of(tmp_path) == f"{commit}+dirty"
    facts: dict[str, Scalar] = {"torch": "2.13", "torchduet_version": "1.0", "torchduet_commit": commit}
    record = replace(make_record(make_job()), environment=facts)
    assert f", torchduet 1.0 ({commit})." in markdown.render(summarize([record]))[markdown.FILE].decode()
