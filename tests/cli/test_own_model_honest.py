"""``--model``: random numbers, through the real command line."""

import json
from pathlib import Path

import pytest

from tests.cli.command import records, run_into, statuses

SOURCE = """
import torch
from torch import nn

def dropping():
    return nn.Sequential(nn.Linear(16, 32), nn.Dropout(0.1), nn.Linear(32, 4)), torch.randn(32, 16)

class Noisy(nn.Linear):
    def forward(self, x):
        return super().forward(x) + torch.randn_like(x)

def noisy():
    return Noisy(16, 16), torch.randn(32, 16)
"""

BRIEFLY = ("-n6", "--processes=1", "-dcpu", "--format=console,csv,json,md")  # the pictures take longest


@pytest.fixture
def here(tmp_path: Path) -> Path:
    (tmp_path / "mine.py").write_text(SOURCE, encoding="utf-8")
    return tmp_path


@pytest.mark.slow
def test_a_dropout_costs_no_compiler_its_pass(here: Path) -> None:
    words = ["--training", "--compilers=eager,inductor", *BRIEFLY]
    done = run_into(here / "run", "--model=mine.py:dropping", *words, cwd=here)
    assert set(statuses(here / "run").values()) == {"pass"}
    said = "Dropout (0.1) is 1e-30: it runs and drops nothing (--dropout=keep leaves it)."
    assert said in " ".join(done.stdout.split())
    assert said in (here / "run" / "report.md").read_text(encoding="utf-8").replace("\\", "")
    assert all(r["model"]["generators"] == ["torch's CPU generator"] for r in records(here / "run"))


@pytest.mark.slow
def test_random_numbers_that_cannot_be_judged_are_in_every_table_and_in_no_average(here: Path) -> None:
    folder = here / "run"
    words = ["--training", "--dropout=keep", "--compilers=aot_eager,inductor", *BRIEFLY]
    models = ("--model=mine.py:dropping", "--model=mine.py:noisy")
    done = run_into(folder, *models, *words, cwd=here, code=1)
    assert statuses(folder) == {
        ("dropping", "aot_eager"): "pass",
        ("dropping", "inductor"): "cannot_judge",
        ("noisy", "aot_eager"): "pass",
        ("noisy", "inductor"): "cannot_judge",
    }
    assert "compute something else" not in done.stdout
    assert "Parity cannot be judged: eager's own results: 2" in done.stdout
    assert "eager draws random numbers (bernoulli_)" in " ".join(done.stdout.split())
    by_key = {(r["job"]["case"]["name"], r["candidate"]): r for r in records(folder)}
    assert by_key["noisy", "inductor"]["parity"]["random"] == "randn_like"
    assert "--dropout=keep" in by_key["noisy", "inductor"]["reproduce"]
    assert len(by_key["noisy", "inductor"]["samples"]["baseline_s"]) == 6  # timed, but in no average
    summary = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
    shares = {group["compiler"]: group["pass_share"] for group in summary["groups"]}
    assert shares == {"inductor": 0.0, "aot_eager": 1.0}
    inductor = [group for group in summary["groups"] if group["compiler"] == "inductor"]
    assert [group["geomean_speedup"] for group in inductor] == [None] * len(inductor)
    (accuracy,) = folder.glob("inductor_*_accuracy.csv")
    assert accuracy.read_text(encoding="utf-8").count(",cannot_judge,") == 2
