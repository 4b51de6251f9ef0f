"""The named commands of an earlier benchmark, as they were typed, but on the CPU and on a small model.

-dcuda --isolate -n100 --speedup-ts                              without a mode: inference
-dcuda --inductor-settings --float32 -n50 --inductor             measured as inductor_reduce_overhead
--float32 --training --nvfuser --speedup-dynamo-ts
    --use-eval-mode --isolate                                    --nvfuser: a record that says where it lives
--training --nvfuser --accuracy-aot-ts-mincut
    --use-eval-mode --isolate                                    the same, here without --nvfuser
runner.py --suites=timm_models --training --dtypes=float32
    --compilers=aot_nvfuser --output-dir=timm_logs               measured as aot_ts_mincut
"""

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from runner.cli.upstream import NO_MODE
from tests.cli.command import ROOT, records
from tests.command_line import ran

pytestmark = pytest.mark.long
SMALL = ("--only=MLP_addition", "--scale=tiny", "--threads=1", "-n4")


def typed(folder: Path, *words: str, script: str = "suites/tiny_gpt.py") -> subprocess.CompletedProcess[str]:
    """The suite's own script, as the commands were given."""
    return ran(sys.executable, ROOT / script, *words, f"--output-dir={folder}", cwd=ROOT, timeout=400)


def one_record(folder: Path) -> dict[str, Any]:
    (record,) = records(folder)
    return record


@pytest.mark.parametrize(
    ("words", "compiler", "mode"),
    [
        (("-dcpu", "--isolate", "--speedup-ts"), "torchscript", "inference"),
        (
            ("-dcpu", "--inductor-settings", "--float32", "--inductor"),
            "inductor_reduce_overhead",
            "inference",
        ),
        (
            ("--float32", "-dcpu", "--training", "--speedup-dynamo-ts", "--use-eval-mode", "--isolate"),
            "dynamo_ts",
            "training",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_speedup_is_measured(tmp_path: Path, words: tuple[str, ...], compiler: str, mode: str) -> None:
    done = typed(tmp_path / "run", *words, *SMALL)
    assert done.returncode == 0, done.stdout + done.stderr
    notes = done.stderr.splitlines()
    assert all(line.startswith("note: ") for line in notes)
    assert (f"note: {NO_MODE}" in notes) == ("--training" not in words)
    record = one_record(tmp_path / "run")
    assert (record["candidate"], record["status"]) == (compiler, "pass")
    assert record["job"]["case"]["mode"] == mode
    assert len(record["samples"]["candidate_s"]) == 4
    assert record["job"]["protocol"]["isolate"] == ("--isolate" in words)
    assert record["job"]["protocol"]["use_eval_mode"] == ("--use-eval-mode" in words)


def test_the_accuracy_of_aot_ts_mincut_is_checked_and_nothing_timed(tmp_path: Path) -> None:
    words = ("-dcpu", "--training", "--accuracy-aot-ts-mincut", "--use-eval-mode", "--isolate")
    done = typed(tmp_path / "run", *words, *SMALL)
    assert done.returncode == 0, done.stdout + done.stderr
    record = one_record(tmp_path / "run")
    assert (record["candidate"], record["status"]) == ("aot_ts_mincut", "pass")
    assert record["parity"]["failed"] == 0
    assert record["parity"]["tensors"] > 3
    assert record["samples"] is None


@pytest.mark.skipif(find_spec("timm") is None, reason="timm is not installed")
def test_the_runners_own_command(tmp_path: Path) -> None:
    words = ("--suites=timm_models", "--training", "--dtypes=float32", "--compilers=aot_nvfuser")
    more = ("-dcpu", "--only=lcnet_050", "--scale=tiny", "--threads=1", "-n4")
    done = typed(tmp_path / "timm_logs", *words, *more, script="runner.py")
    assert done.returncode == 0, done.stdout + done.stderr
    record = one_record(tmp_path / "timm_logs")
    assert (record["candidate"], record["status"]) == ("aot_ts_mincut", "pass")
    assert "note: aot_nvfuser: measured as aot_ts_mincut" in done.stderr
    assert {"summary.json", "report.md"} <= {file.name for file in (tmp_path / "timm_logs").iterdir()}
