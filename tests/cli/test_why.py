"""``--why`` through the real command line, on a model with one planted cause."""

import json
from pathlib import Path

import pytest

from tests.cli.command import TOYS, records, runner

SOURCE = '''
import torch

class Longer(torch.nn.Module):
    """While it is compiled, it computes eight more products, whose result it does not use."""

    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(512, 512)

    def forward(self, x):
        y = self.layer(x)
        if torch.compiler.is_compiling():
            more = x
            for _ in range(8):
                more = more @ self.layer.weight
            y = y + more.clamp(0, 0)
        return y

def make():
    return Longer(), torch.randn(512, 512)
'''


@pytest.mark.slow
def test_code_that_takes_another_path_while_it_is_compiled_is_explained(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(SOURCE)
    out = tmp_path / "out"
    words = (
        "--why",
        "--inference",
        "-dcpu",
        "-t1",
        "-n",
        "10",
        "--model=mine.py:make",
        "--compilers=aot_eager",
    )
    done = runner(*words, f"--output-dir={out}", cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    (why,) = json.loads((out / "why.json").read_text())["explanations"]
    explained = [cause["cause"] for cause in why["causes"] if cause["state"] == "explained"]
    assert explained == ["capture"]
    assert "Explained: capture." in (out / "why.md").read_text()
    assert "What to try" not in done.stdout
    (pairs,) = out.glob("*/pairs")
    assert {record["candidate"] for record in records(pairs)} == {"aot_eager", "dynamo_eager"}


@pytest.mark.slow
def test_a_model_that_fails_has_no_explanation(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("def make():\n    raise RuntimeError('no weights')\n")
    out = tmp_path / "out"
    words = ("--why", "--inference", "-dcpu", "-n", "6", "--model=mine.py:make", "--compilers=aot_eager")
    done = runner(*words, f"--output-dir={out}", cwd=tmp_path)
    assert done.returncode == 1
    assert "has no times (model_fail_to_load)" in done.stdout + done.stderr
    assert json.loads((out / "why.json").read_text())["explanations"] == []


@pytest.mark.slow
def test_a_setting_that_is_none_is_one_sentence(tmp_path: Path) -> None:
    words = ("--why", "--inference", "-dcpu", f"--suites={TOYS}", "--only=linear")
    done = runner(*words, "--compilers=aot_eager[dynamo.recompile_limi=1]", cwd=tmp_path)
    assert done.returncode == 2
    assert "the closest are recompile_limit" in done.stderr
    assert not list(tmp_path.iterdir())
