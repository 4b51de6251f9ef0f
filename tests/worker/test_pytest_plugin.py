"""The pytest plugin in a project of its own, with two workers of pytest-xdist."""

import os
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest

from runner.runs.compare.run import load
from tests.command_line import ran

ROOT = Path(__file__).parents[2]
PROJECT = """
import pytest, torch
from torch import nn
from torchduet import Protocol

FEW = Protocol(repeat=6, min_sample_s=0.0)
ONE = {"compilers": "dynamo_eager", "protocol": FEW, "mode": "inference"}

@pytest.mark.parametrize("size", [4, 8])
def test_same(torchduet, size):
    for _ in range(2):
        result = torchduet(nn.Linear(8, size), torch.randn(2, 8), **ONE)
    result.assert_same()
    result.assert_no_graph_breaks()
    result.assert_not_slower(threshold=99.0)

def test_breaks(torchduet):
    def broken(x):
        y = x.relu()
        torch._dynamo.graph_break()
        return y + 1
    torchduet(broken, torch.randn(4), **ONE).assert_no_graph_breaks()

def test_missing(torchduet):
    torchduet(nn.ReLU(), torch.randn(4), compilers="tensorrt")

def test_misspelled(torchduet):
    torchduet(nn.ReLU(), torch.randn(4), compilers="induktor")
"""


def run(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    own = {
        "PYTHONPATH": str(ROOT),
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
    }  # an installed one would come twice
    named = ("-p", "torchduet.pytest_plugin", "-p", "xdist")
    command = (sys.executable, "-m", "pytest", "-rA", "--show-capture=no", *named, *words)
    return ran(*command, cwd=folder, env={**os.environ, **own})


@pytest.mark.slow
def test_records_of_all_workers_are_one_run_and_no_two_measure_at_once(tmp_path: Path) -> None:
    (tmp_path / "test_own.py").write_text(PROJECT)
    done = run(tmp_path, "-n2", "--torchduet-record=run")
    text = done.stdout + done.stderr
    assert done.returncode == 1, text
    assert "2 failed, 2 passed, 1 skipped" in text
    assert "TensorRT needs a CUDA device" in text
    assert "x Call to `torch._dynamo.graph_break()`" in text
    assert "test_own.py:20: torch._dynamo.graph_break())" in text
    assert "compilers: there is no compiler called 'induktor'; did you mean inductor" in text
    assert f"torchduet: records in {tmp_path / 'run'}" in text
    members = load("--compare", tmp_path / "run").results
    names = [f"test_same[{size}]{more}" for size in (4, 8) for more in ("", "#2")]
    assert sorted(member.name for member in members) == ["test_breaks", *names]
    assert {member.record.job.case.suite for member in members} == {"test_own.py"}
    spans = sorted((member.record.started, member.record.ended) for member in members)
    assert all(ended <= started for (_, ended), (started, _) in pairwise(spans))
    again = run(tmp_path, "--torchduet-record=run")
    assert (again.returncode, again.stdout) == (4, "")
    assert again.stderr.strip() == (
        f"ERROR: --torchduet-record: {tmp_path / 'run'} holds another run; name a new folder".replace(
            f"{tmp_path}/", ""
        )
    )
