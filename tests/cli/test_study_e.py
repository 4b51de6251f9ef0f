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

import sys
from pathlib import Path

import pytest

from runner.cli.upstream import NO_MODE
from tests.cli.command import ROOT, records
from tests.command_line import ran

SMALL = ("-dcpu", "--scale=tiny", "--threads=1", "-n4", "--processes=1")
SUITE = "suites/tiny_gpt.py --only=MLP_addition"


@pytest.mark.long
@pytest.mark.parametrize(
    ("command", "compiler"),
    [
        (f"{SUITE} --isolate --speedup-ts", "torchscript"),
        (f"{SUITE} --inductor-settings --float32 --inductor", "inductor_reduce_overhead"),
        (f"{SUITE} --float32 --training --speedup-dynamo-ts --use-eval-mode --isolate", "dynamo_ts"),
        (f"{SUITE} --training --accuracy-aot-ts-mincut --use-eval-mode --isolate", "aot_ts_mincut"),
        (
            "runner.py --suites=timm_models --only=lcnet_050 --training --compilers=aot_nvfuser",
            "aot_ts_mincut",
        ),
    ],
)
def test_a_command_has_the_record_that_it_asks_for(tmp_path: Path, command: str, compiler: str) -> None:
    script, *words = command.split()
    if "timm" in command:
        pytest.importorskip("timm")
    run = tmp_path / "run"
    words += [*SMALL, f"--output-dir={run}"]
    done = ran(sys.executable, ROOT / script, *words, cwd=ROOT, timeout=400)
    assert done.returncode == 0, done.stdout + done.stderr
    notes = done.stderr.splitlines()
    assert all(line.startswith("note: ") for line in notes)
    assert (f"note: {NO_MODE}" in notes) == ("--training" not in words)
    assert ("note: aot_nvfuser: measured as aot_ts_mincut" in done.stderr) == ("nvfuser" in command)
    (record,) = records(run)
    assert (record["candidate"], record["status"]) == (compiler, "pass")
    assert record["job"]["case"]["mode"] == ("training" if "--training" in words else "inference")
    assert record["job"]["protocol"]["isolate"] == ("--isolate" in words)
    assert record["job"]["protocol"]["use_eval_mode"] == ("--use-eval-mode" in words)
    assert record["parity"]["failed"] == 0
    if "--accuracy-aot-ts-mincut" in words:
        assert record["samples"] is None
    else:
        assert len(record["samples"]["candidate_s"]) == 4
    assert {"summary.json", "report.md"} <= {file.name for file in run.iterdir()}
