"""``--start-up``, a whole run: eager, cold and warm starts, each in a process of its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.command import records, runner

MODEL = """
import torch

def make():
    return torch.nn.Linear(8, 4), torch.randn(4, 8)

def fine(graph, example_inputs):
    return graph.forward
"""
WORDS = ("--model=mine.py:make", "--inference", "-n6", "-dcpu", "--compilers=mine.py:fine")


@pytest.mark.slow
def test_a_race_of_a_compiler_that_stores_nothing(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(MODEL, encoding="utf-8")
    folder = tmp_path / "run"
    done = runner(*WORDS, "--start-up=1", f"--output-dir={folder}", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    (record,) = records(folder)
    races = record["compilations"]
    assert [race["start"] for race in races] == ["eager", "cold", "warm"]
    assert all(len(race["first_calls_s"]) == 100 for race in races)
    assert [race["status"] for race in races] == ["pass_due_to_skip", "pass_due_to_skip", "pass"]
    assert "compilation_latency_s" not in races[1]["metrics"]
    assert record["job"]["protocol"]["start"] == ""
    assert "mine.fine, cold" in (folder / "report.md").read_text(encoding="utf-8")
    assert [path.suffix for path in sorted(folder.glob("*_start_up.*"))] == [".png", ".svg"]
    assert [p for p in folder.rglob("caches-*") if p.is_dir()] == []
