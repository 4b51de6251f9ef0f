"""``--shapes``, a whole run: a stream of eager and of each strategy, each in a process of its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.command import records, runner

MODEL = """
import torch

class Wrong(torch.nn.Linear):
    def forward(self, given):
        values = super().forward(given)
        if torch.compiler.is_compiling() and given.shape[0] == 6:
            return values * 1.5
        return values

def make(batch_size=8):
    return torch.nn.Linear(8, 4), torch.randn(batch_size, 8)

def wrong(batch_size=8):
    return Wrong(8, 4), torch.randn(batch_size, 8)
"""
WORDS = ("--inference", "-n6", "-dcpu", "-t1", "--compilers=aot_eager", "--format=json,md")
STRATEGIES = ["static", "automatic", "dynamic", "marked", "padded"]


@pytest.mark.slow
def test_a_stream_by_each_strategy_and_a_size_that_computes_something_else(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(MODEL, encoding="utf-8")
    folder = tmp_path / "run"
    models = ("--model=mine.py:make", "--model=mine.py:wrong")
    done = runner(*models, *WORDS, "--shapes=batch=4,6,8:12", f"--output-dir={folder}", cwd=tmp_path)
    assert done.returncode == 1, done.stderr
    fine, wrong = records(folder)
    streams = {one["start"]: one for one in fine["compilations"]}
    assert list(streams) == ["eager", *STRATEGIES]
    assert fine["status"] == "pass"
    assert {streams[name]["status"] for name in STRATEGIES} == {"pass"}
    assert all(len(one["first_calls_s"]) == 12 for one in streams.values())
    assert streams["static"]["stream"] == {"sizes": [4, 6, 8] * 4, "compiled": [0, 1, 2], "eager": []}
    assert streams["padded"]["stream"] == {"sizes": [4, 8, 8] * 4, "compiled": [0, 1], "eager": []}
    assert streams["dynamic"]["stream"]["compiled"] == [0]
    assert streams["eager"]["stream"] == {"sizes": [4, 6, 8] * 4, "compiled": [], "eager": None}
    assert fine["job"]["options"]["strategy"] == fine["job"]["protocol"]["start"] == ""

    assert (wrong["status"], wrong["failure"]["kind"]) == ("fail_accuracy", "AnotherSize")
    assert wrong["failure"]["message"].startswith("static shapes: batch=6: output: off by 50 %")
    ends = {one["start"]: one["status"] for one in wrong["compilations"]}
    assert (ends["static"], ends["padded"]) == ("fail_accuracy", "pass")  # padded never runs 6
    report = (folder / "report.md").read_text(encoding="utf-8")
    assert "Changing shapes (batch=4,6,8:12, seed 1337): 12 calls in fresh processes" in report
    assert report.count("| eager |") >= 2
    assert all(report.count(f"aot_eager, {name} |") >= 1 for name in STRATEGIES)
    assert "aot_eager: static shapes: batch=6: output: off by 50 %" in report.replace("\\", "")
    assert "shapes are fixed" not in report
