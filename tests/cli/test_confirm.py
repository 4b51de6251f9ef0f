"""``--confirm`` through the real program: what a gate would fail is measured again before it fails."""

import sys
from pathlib import Path

import pytest

from runner.store.record_file import read_records
from tests.cli.command import run_into
from tests.cli.instant_runs import INSTANT, SUITE
from tests.cli.test_environments import QUIET, envs, wrapper
from tests.command_line import ran

MODEL = """
import os, torch


class Model(torch.nn.Linear):
    def forward(self, x):
        worse = torch.compiler.is_compiling() and os.environ.get("TORCHDUET_PLANTED")
        for _ in range(200 if worse else 0):
            x = x + 0 * torch.sin(x)
        return super().forward(x)


def make():
    return Model(4, 4), torch.ones(2, 4)
"""


@pytest.mark.slow
def test_what_only_two_unlucky_processes_showed_fails_no_gate(tmp_path: Path) -> None:
    """Of two results below the limit one is so again, in two fresh processes of each."""
    words = ["--training", f"--suites={SUITE}", "--only=one,unlucky", "--compilers=inductor", "-n12", "-dcpu"]
    words += [
        "--processes=2",
        "--fail-on=speedup:0.9",
        f"--output-dir={tmp_path / 'run'}",
        "--format=console",
    ]
    alone = ran(sys.executable, INSTANT, *words[:-2], f"--output-dir={tmp_path / 'alone'}")
    assert alone.returncode == 1, alone.stdout + alone.stderr
    done = ran(sys.executable, INSTANT, *words, "--confirm")
    assert "--confirm: a gate would fail by 1 result: measured again" in done.stdout
    assert "speedup:0.9: passed (speedups below 0.9, of 2: 0)\n    confirmed by rerun: 0 of 1" in done.stdout
    assert "not confirmed: measured again, these are within the limit: 1" in done.stdout
    assert done.returncode == 0, done.stdout + done.stderr
    processes = read_records(tmp_path / "run" / "records.jsonl").processes
    confirms = [(r.job.case.name, r.process, r.confirms) for r in processes if r.confirms]
    assert confirms == [("unlucky", 2, "speedup:0.9"), ("unlucky", 3, "speedup:0.9")]


@pytest.mark.slow
def test_a_planted_loss_between_environments_is_confirmed(tmp_path: Path) -> None:
    (tmp_path / "models.py").write_text(MODEL)
    other = wrapper(tmp_path / "python", "TORCHDUET_PLANTED=1")
    words = [f"--model={tmp_path / 'models.py'}:make", "--inference", "--compilers=aot_eager", *QUIET]
    words += ["-n12", *envs(plain=sys.executable, other=other), "--format=console"]
    words.remove("-n6")
    done = run_into(tmp_path / "run", *words, "--fail-on=regression:5%,graph-breaks", "--confirm", code=1)
    assert "--fail-on regression:5 %: FAILED (speedups that fell by more than 5 %, of 1: 1)" in done.stdout
    assert "confirmed by rerun: 1 of 1" in done.stdout
    assert "--fail-on graph-breaks: passed" in done.stdout
    records = read_records(tmp_path / "run" / "records.jsonl").processes
    again = {(r.candidate, r.process) for r in records if r.confirms == "regression:5 %"}
    assert again == {("aot_eager@plain", 1), ("aot_eager@other", 1)}
