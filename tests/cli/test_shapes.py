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
    return Wrong(8, 4), torch.randn(batch_size, 8)
"""
WORDS = ("--inference", "-n6", "-dcpu", "-t1", "--compilers=aot_eager", "--format=json,md")
STRATEGIES = ["static", "automatic", "dynamic", "marked", "padded"]


@pytest.mark.slow
def test_a_stream_by_each_strategy_and_a_size_that_computes_something_else(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(MODEL, encoding="utf-8")
    folder = tmp_path / "run"
    done = runner(
        "--model=mine.py:make", *WORDS, "--shapes=batch=4,6,8:12", f"--output-dir={folder}", cwd=tmp_path
    )
    assert done.returncode == 1, done.stderr
    (record,) = records(folder)
    streams = {c["start"]: c for c in record["compilations"]}
    assert list(streams) == ["eager", *STRATEGIES]
    assert all(len(c["first_calls_s"]) == 12 for c in streams.values() if c["stream"])
    assert streams["static"]["stream"] == {"sizes": [4, 6, 8] * 4, "compiled": [0, 1, 2], "eager": []}
    assert streams["padded"]["stream"] == {"sizes": [4, 8, 8] * 4, "compiled": [0, 1], "eager": []}
    assert streams["eager"]["stream"] == {"sizes": [4, 6, 8] * 4, "compiled": [], "eager": None}
    assert record["job"]["options"]["strategy"] == record["job"]["protocol"]["start"] == ""

    assert (record["status"], record["failure"]["kind"]) == ("fail_accuracy", "AnotherSize")
    assert record["failure"]["message"].startswith("static shapes: batch=6: output: off by 50 %")
    assert streams["static"]["status"] == "fail_accuracy"
    assert streams["padded"]["status"] == "pass"  # it never runs 6
    report = (folder / "report.md").read_text(encoding="utf-8")
    assert "Changing shapes (batch=4,6,8:12, seed 1337): 12 calls in fresh processes" in report
    assert all(f"| {name} |" in report for name in ("eager", "aot_eager, static", "aot_eager, padded"))
    assert "aot_eager: static shapes: batch=6: output: off by 50 %" in report.replace("\\", "")
    assert "shapes are fixed" not in report
