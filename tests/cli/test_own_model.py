"""``--model``: a model of the user's own, through the real command line."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.command import records, runner, statuses

SOURCE = """
import torch

def make(batch_size=4):
    return torch.nn.Linear(8, 4), torch.randn(batch_size, 8)

def named():
    return torch.nn.Linear(8, 4), {"input": torch.randn(4, 8)}, lambda output, target: output.square().mean()

def nothing():
    return None

def raises():
    raise RuntimeError("there is no such file as weights.bin")

value = 3
"""


def mine(folder: Path) -> Path:
    path = folder / "my_models.py"
    path.write_text(SOURCE, encoding="utf-8")
    return path


def test_models_of_ones_own_run_from_the_current_folder(tmp_path: Path) -> None:
    mine(tmp_path)
    folder = tmp_path / "run"
    words = ["--training", "--compilers=eager", "-n", "6", "-dcpu", f"--output-dir={folder}"]
    done = runner("--model=my_models:make", "--model=my_models.py:named", *words, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert statuses(folder) == {("make", "eager"): "pass", ("named", "eager"): "pass"}
    assert all(len(r["samples"]["baseline_s"]) == 6 for r in records(folder))
    assert "--model=my_models:make" in records(folder)[0]["reproduce"]


def test_a_batch_size_is_passed_on(tmp_path: Path) -> None:
    words = ["--inference", "--compilers=eager", "--accuracy", "-dcpu", "--batch-size=7"]
    runner(f"--model={mine(tmp_path)}:make", *words, f"--output-dir={tmp_path / 'run'}")
    (record,) = records(tmp_path / "run")
    assert record["model"]["input_shapes"] == ["input.0.0: float32[7, 8]"]


@pytest.mark.parametrize(
    ("spec", "more", "says"),
    [
        ("my_models:nothing", [], "--model: my_models:nothing returned a NoneType; it must return (module,"),
        ("my_models:raises", [], "there is no such file as weights.bin"),
        ("my_models:absent", [], "--model: 'my_models' has no function 'absent'"),
        ("my_models:value", [], "--model: 'my_models' has no function 'value'"),
        ("no.such.module:make", [], "--model: there is no module 'no.such.module' here"),
        ("my_models:named", ["--batch-size=2"], "--batch-size: my_models:named has no parameter called"),
        ("my_models:named", ["--model-config=a=1"], "has no configuration that the harness knows"),
    ],
)
def test_what_is_wrong_with_it_is_one_record(spec: str, more: list[str], says: str, tmp_path: Path) -> None:
    mine(tmp_path)
    words = ["--inference", "--compilers=eager", "--accuracy", "-dcpu", *more]
    done = runner(f"--model={spec}", *words, f"--output-dir={tmp_path / 'run'}", cwd=tmp_path)
    assert done.returncode == 1
    (record,) = records(tmp_path / "run")
    assert record["status"] == "model_fail_to_load"
    assert says in record["failure"]["message"]
    assert "Traceback" not in done.stdout + done.stderr
