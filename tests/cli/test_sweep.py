"""``--sweep``, a whole run: a job for each point, a curve, and ``--resume`` of a missing point."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.command import records, runner

MODEL = """
import torch

def make(batch_size=4):
    return torch.nn.Linear(8, 4), torch.randn(batch_size, 8)

def fine(graph, example_inputs):
    return graph.forward
"""
WORDS = ("--model=mine.py:make", "--inference", "-n6", "-dcpu", "--compilers=mine.py:fine")


@pytest.mark.slow
def test_a_curve_over_the_batch_and_the_threads(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(MODEL, encoding="utf-8")
    folder = tmp_path / "run"
    words = (*WORDS, "--sweep=batch=2,16", "--sweep=threads=1", f"--output-dir={folder}")
    done = runner(*words, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    run_records = records(folder)
    assert [record["job"]["case"]["point"] for record in run_records] == [
        ["batch=2", "threads=1"],
        ["batch=16", "threads=1"],
    ]
    assert [record["model"]["batch_size"] for record in run_records] == [2, 16]
    assert {record["environment"]["threads"] for record in run_records} == {1}
    assert [path.suffix for path in sorted(folder.glob("*_curves.*"))] == [".png", ".svg"]
    lines = (folder / "records.jsonl").read_text(encoding="utf-8").splitlines(keepends=True)
    (folder / "records.jsonl").write_text(lines[0], encoding="utf-8")
    done = runner(f"--resume={folder}", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert [record["model"]["batch_size"] for record in records(folder)] == [2, 16]
    assert "mine.fine over batch 2 to 16: " in done.stdout


def test_a_function_without_the_parameter_is_named(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(MODEL, encoding="utf-8")
    done = runner(*WORDS, "--sweep=sequence=2,4", cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr.startswith("error: --sweep: ")
    assert done.stderr.endswith("mine.py:make has no parameter called sequence\n")
