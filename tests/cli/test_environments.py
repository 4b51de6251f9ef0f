"""``--envs`` through the real program: one torch under two settings. Another torch: ``tests/versions``."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.cli.command import ROOT, TOYS, records, run_into
from tests.command_line import executable, ran

QUIET = ["-dcpu", "-n6", "-t1", "--processes=1"]


def wrapper(path: Path, setting: str) -> Path:
    """The same Python with another setting, which makes it another environment."""
    return executable(path, f'#!/bin/sh\nexport {setting}\nexec {sys.executable} "$@"\n')


def envs(**pythons: Path | str) -> list[str]:
    return [f"--envs={name}={python}" for name, python in pythons.items()]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A run in two environments, and what it printed."""
    folder = tmp_path_factory.mktemp("environments")
    other = wrapper(folder / "python", "TORCHDUET_EXAMPLE=1")
    words = ["--training", f"--suites={TOYS}", "--only=norm", "--compilers=aot_eager,eager"]
    words += [*QUIET, *envs(plain=sys.executable, other=other), "--format=console,json"]
    done = run_into(folder / "run", *words)
    return folder / "run", done.stdout + done.stderr


def by_candidate(folder: Path, model: str) -> dict[str, dict[str, Any]]:
    return {r["candidate"]: r for r in records(folder) if r["job"]["case"]["name"] == model}


@pytest.mark.slow
def test_every_candidate_has_its_record_which_says_where_it_is_from(run: tuple[Path, str]) -> None:
    folder, printed = run
    by_name = by_candidate(folder, "norm")
    statuses = {candidate: record["status"] for candidate, record in by_name.items()}
    names = ("eager@plain", "aot_eager@plain", "eager@other", "aot_eager@other")
    assert statuses == dict.fromkeys(names, "pass")
    assert "plain: torch " in printed
    assert "aot_eager" in printed.partition("Each row is compared with eager of plain")[0]
    for candidate, record in by_name.items():
        assert record["env"] == candidate.split("@")[1]
        assert record["environment"]["torch"]
        setting = record["environment"].get("env.TORCHDUET_EXAMPLE")
        assert setting == ("1" if record["env"] == "other" else None)
        assert record["environment"]["worker"] == "fresh"  # for all alike
    about = json.loads((folder / "run.json").read_text())["environments"]
    assert about["other"]["settings"]["TORCHDUET_EXAMPLE"] == "1"
    agreement = by_name["eager@other"]["env_parity"]  # eager is held against the reference's
    assert agreement["failed"] == 0
    assert agreement["tensors"] > 8  # loss, output, gradients and buffers
    assert agreement["worst"]["candidate_rmse"] == agreement["worst"]["eager_rmse"]  # the same torch
    assert by_name["aot_eager@plain"]["env_parity"] is None
    (case,) = (folder / "cases").glob("toys-norm*")
    figures = ["parity-aot_eager-other.csv", "parity-aot_eager-plain.csv"]
    assert sorted(path.name for path in case.iterdir()) == ["envs", "job.json", "output.log", *figures]
    for name in ("plain", "other"):
        by_hand = (case / "envs" / name / "output.log").read_text().splitlines()[0]
        assert "-m harness.worker --job" in by_hand
        job = json.loads((case / "envs" / name / "job.json").read_text())
        assert job["candidates"][-1] == "aot_eager"


@pytest.mark.slow
@pytest.mark.parametrize(("good", "new", "code"), [("0", "1", 1), ("0", "0.0", 0)])
def test_a_step_of_git_bisect_names_the_worse_build(tmp_path: Path, good: str, new: str, code: int) -> None:
    """Two planted versions: in the second, what is compiled has another sign."""
    (tmp_path / "models.py").write_text(
        "import os, torch\n\n\nclass Model(torch.nn.Linear):\n    def forward(self, x):\n"
        "        wrong = torch.compiler.is_compiling() and os.environ['TORCHDUET_PLANTED'] == '1'\n"
        "        return -super().forward(x) if wrong else super().forward(x)\n\n\n"
        "def make():\n    return Model(4, 4), torch.ones(2, 4)\n"
    )
    builds = [
        str(wrapper(tmp_path / f"python{value}", f"TORCHDUET_PLANTED={value}")) for value in (good, new)
    ]
    words = ["parity", f"--model={tmp_path / 'models.py'}:make", "--inference", "--compilers=aot_eager"]
    step = ran(sys.executable, str(ROOT / "examples" / "bisect_step.py"), *builds, *words, *QUIET)
    assert step.returncode == code, step.stdout + step.stderr
