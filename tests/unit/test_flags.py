"""The command line: flags, which are frozen in a file, listings of compilers, the first word.

``UPDATE_GOLDEN=1 pytest tests/unit/test_flags.py`` writes the file anew; read the difference.
"""

import argparse
import os
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from harness.schema import Environment, Scalar
from runner.analysis.derive import summarize
from runner.cli.actions import with_flag
from runner.cli.main import main
from runner.cli.parser import build_parser
from runner.plan.compilers import Usable
from runner.plan.environments.prepare import Checked
from runner.plan.environments.spec import EnvSpec
from runner.reports import markdown
from runner.store.invocation import commit_of, program_facts, version
from tests.command_line import git
from tests.factories import Capture, Patch, make_job, make_record

FLAGS = Path(__file__).parent.parent / "data" / "golden" / "flags.txt"


def actions() -> list[argparse.Action]:
    return build_parser()._actions


def test_the_list_of_flags() -> None:
    flags = "".join(f"{flag}\n" for flag in sorted(f for action in actions() for f in action.option_strings))
    if os.environ.get("UPDATE_GOLDEN"):
        FLAGS.write_text(flags, encoding="utf-8")
    assert flags == FLAGS.read_text(encoding="utf-8")


def test_every_flag_says_what_it_does_in_a_group_and_none_may_be_abbreviated() -> None:
    assert [a.option_strings for a in actions() if not a.help] == []
    assert build_parser().allow_abbrev is False
    text = build_parser().format_help()
    groups = ("what to measure:", "compilers (", "under which conditions:", "how to measure:", "output:")
    assert [heading for heading in groups if heading not in text] == []
    assert "python runner.py --suites=tiny_gpt --training --dtypes=bfloat16" in text


# -- listings ------------------------------------------------------------
def answers(
    device_type: str, names: Sequence[str] = (), python: str | None = None, **_: object
) -> Mapping[str, Usable]:
    assert not names
    why = f"{python} lacks it" if python else None
    return {
        "eager": Usable(what="the control", why_not=None, modes=()),
        "onnxrt": Usable(what="ONNX Runtime", why_not=why, modes=("inference",)),
    }


def test_a_list_for_a_device_that_is_not_there_says_so(monkeypatch: Patch, capsys: Capture) -> None:
    def missing(devices: Sequence[str]) -> dict[str, str]:
        return dict.fromkeys(devices, "torch 2.15.0+cu132 finds no CUDA device")

    monkeypatch.setattr("runner.cli.actions.list_compilers.usable_compilers", answers)
    monkeypatch.setattr("runner.cli.actions.list_compilers.missing_devices", missing)
    assert main(["--list-compilers", "--devices=cpu,cuda:1"]) == 0
    printed = capsys.readouterr()
    lines = printed.out.splitlines()
    assert [line.split()[0] for line in lines] == ["cpu", "cpu", "cuda", "cuda"]
    assert lines[0].split() == ["cpu", "eager", "yes", "the", "control"]
    assert lines[1].endswith("yes  ONNX Runtime (inference only)")
    assert printed.err == (
        "note: cuda is not there (torch 2.15.0+cu132 finds no CUDA device); "
        "a yes says that the packages are installed\n"
    )


def test_compilers_of_each_environment(monkeypatch: Patch, capsys: Capture) -> None:
    def resolved(asked: Sequence[EnvSpec], *_: object) -> Checked:
        here = [Environment(name=env.name, python=f"python-{env.name}", asked=env.text) for env in asked]
        return {environment: {"torch": "2.2.2", "python": "3.11.7"} for environment in here}

    monkeypatch.setattr("runner.plan.environments.prepare.resolved", resolved)
    monkeypatch.setattr("runner.cli.actions.list_compilers.usable_compilers", answers)
    python = sys.executable
    assert main(["--list-compilers", "--devices=cpu", f"--envs=a={python}", f"--envs=b={python}3"]) == 0
    lines = capsys.readouterr().out.splitlines()
    for place, name in ((0, "a"), (3, "b")):
        assert lines[place] == f"{name}: torch 2.2.2, Python 3.11.7"
        assert lines[place + 2].endswith(f"no   python-{name} lacks it (inference only)")


# -- first word ------------------------------------------------------------
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


def test_nothing_typed_says_how_to_begin(capsys: Capture) -> None:
    assert main([]) == 2
    said = capsys.readouterr().err
    assert said.startswith("error: say what to measure, for example: ")
    assert "--help" in said
    assert len(said.splitlines()) == 1


def test_the_version_is_that_of_the_project(capsys: Capture) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["version"])
    assert ended.value.code == 0
    assert capsys.readouterr().out == f"torchduet {version()}\n"


def test_records_name_the_program_that_measured(tmp_path: Path) -> None:
    assert program_facts()["torchduet_version"] == version()
    assert commit_of(tmp_path) == ""  # not a checkout
    (tmp_path / "file").write_text("1")
    for words in (("init", "-q"), ("add", "."), ("commit", "-q", "-m", "x")):
        git(tmp_path, *words)
    commit = commit_of(tmp_path)
    assert re.fullmatch("[0-9a-f]{12}", commit)
    (tmp_path / "file").write_text("2")
    assert commit_of(tmp_path) == f"{commit}+dirty"
    facts: dict[str, Scalar] = {"torch": "2.13", "torchduet_version": "1.0", "torchduet_commit": commit}
    record = replace(make_record(make_job()), environment=facts)
    assert f", torchduet 1.0 ({commit})." in markdown.render(summarize([record]))[markdown.FILE].decode()
