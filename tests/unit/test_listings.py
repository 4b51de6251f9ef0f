"""What ``--list-compilers`` prints, here and in several environments. The answers are made up."""

import sys
from collections.abc import Mapping, Sequence

import pytest

from harness.schema import Environment
from runner.cli.main import main
from runner.plan.compilers import Usable
from runner.plan.environments.prepare import Checked
from runner.plan.environments.spec import EnvSpec


def answers(
    device_type: str, names: Sequence[str] = (), python: str | None = None, **_: object
) -> Mapping[str, Usable]:
    assert not names
    why = f"{python} lacks it" if python else None
    return {
        "eager": Usable(what="the control", why_not=None, modes=()),
        "onnxrt": Usable(what="ONNX Runtime", why_not=why, modes=("inference",)),
    }


def test_compilers_of_this_interpreter(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("runner.cli.actions.list_compilers.usable_compilers", answers)
    assert main(["--list-compilers", "--devices=cpu"]) == 0
    eager, onnxrt = capsys.readouterr().out.splitlines()
    assert eager.split() == ["cpu", "eager", "yes", "the", "control"]
    assert onnxrt.endswith("yes  ONNX Runtime (inference only)")


def test_a_list_for_a_device_that_is_not_there_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def missing(devices: Sequence[str]) -> dict[str, str]:
        return dict.fromkeys(devices, "torch 2.15.0+cu132 finds no CUDA device")

    monkeypatch.setattr("runner.cli.actions.list_compilers.usable_compilers", answers)
    monkeypatch.setattr("runner.cli.actions.list_compilers.missing_devices", missing)
    assert main(["--list-compilers", "--devices=cpu,cuda:1"]) == 0
    printed = capsys.readouterr()
    assert [line.split()[0] for line in printed.out.splitlines()] == ["cpu", "cpu", "cuda", "cuda"]
    assert printed.err == (
        "note: cuda is not there (torch 2.15.0+cu132 finds no CUDA device); "
        "a yes says that the packages are installed\n"
    )


def test_compilers_of_each_environment(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def found(asked: Sequence[EnvSpec], *_: object) -> Checked:
        facts = {"torch": "2.2.2", "python": "3.11.7"}
        return {
            Environment(name=one.name, python=f"python-{one.name}", asked=one.text): facts for one in asked
        }

    monkeypatch.setattr("runner.plan.environments.prepare.resolved", found)
    monkeypatch.setattr("runner.cli.actions.list_compilers.usable_compilers", answers)
    python = sys.executable
    assert main(["--list-compilers", "--devices=cpu", f"--envs=a={python}", f"--envs=b={python}3"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "a: torch 2.2.2, Python 3.11.7"
    assert lines[2].endswith("no   python-a lacks it (inference only)")
    assert lines[3] == "b: torch 2.2.2, Python 3.11.7"
    assert lines[5].endswith("no   python-b lacks it (inference only)")
