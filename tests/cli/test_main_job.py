"""The main job end to end, on a suite of toy modules and with real worker processes."""

import json
import os
import shlex
import shutil
import sys
from pathlib import Path

import pytest

from tests.cli.command import ROOT, TOYS, records, run_into, runner, statuses
from tests.command_line import ran


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One whole run: two models, the control and a compiler, training."""
    folder = tmp_path_factory.mktemp("runs") / "run"
    words = ("--training", f"--suites={TOYS}", "-x=deep", "--compilers=eager,aot_eager")
    done = run_into(folder, *words, "-n6", "--processes=1")
    assert "Geometric mean speedup" in done.stdout
    assert "linear" in done.stdout
    return folder


def test_every_job_and_candidate_has_one_record(finished: Path) -> None:
    expected = {(name, candidate) for name in ("linear", "norm") for candidate in ("eager", "aot_eager")}
    assert set(statuses(finished)) == expected
    assert set(statuses(finished).values()) == {"pass"}


def test_a_record_tells_everything(finished: Path) -> None:
    record = next(r for r in records(finished) if r["candidate"] == "aot_eager")
    assert len(record["samples"]["baseline_s"]) == len(record["samples"]["candidate_s"]) == 6
    assert set(record["samples"]["baseline_position"]) <= {0, 1, 2}
    assert record["parity"]["reference"] == "fp64"
    assert record["parity"]["worst"]["name"]
    assert record["metrics"]["unique_graphs"] >= 1
    assert record["metrics"]["compilation_latency_s"] > 0
    assert record["metrics"]["baseline_peak_memory_bytes"] > 0
    assert record["model"]["parameters"] > 0
    assert record["environment"]["torch"]
    assert record["reproduce"].startswith("python runner.py")
    control = next(r for r in records(finished) if r["candidate"] == "eager")
    assert control["metrics"]["unique_graphs"] == 0


def test_the_files_of_a_run(finished: Path) -> None:
    names = {path.name for path in finished.iterdir()}
    assert {"run.json", "records.jsonl", "cases", "summary.json", "report.html", "report.md"} <= names
    assert {"toys_float32.png", "toys_float32.svg"} <= names
    assert {
        f"{compiler}_toys_float32_training_cpu_{test}.csv"
        for compiler in ("eager", "aot_eager")
        for test in ("performance", "accuracy")
    } <= names
    header = (finished / "aot_eager_toys_float32_training_cpu_performance.csv").read_text().splitlines()[0]
    assert header.startswith("dev,name,batch_size,speedup,abs_latency,compilation_latency,compression_ratio,")


def test_what_is_derived_is_rebuilt_byte_for_byte_from_the_rest(finished: Path, tmp_path: Path) -> None:
    copy = tmp_path / "moved"
    copy.mkdir()
    for name in ("records.jsonl", "run.json"):
        shutil.copy(finished / name, copy)
    shutil.copytree(finished / "cases", copy / "cases")
    done = runner("--visualize-logs", str(copy))
    assert done.returncode == 0
    assert "Geometric mean speedup" in done.stdout
    rebuilt = {path.name: path.read_bytes() for path in copy.iterdir() if path.is_file()}
    assert rebuilt == {path.name: path.read_bytes() for path in finished.iterdir() if path.is_file()}


@pytest.mark.slow
def test_the_logs_first_line_runs_the_job_by_hand(finished: Path) -> None:
    log = next((finished / "cases").glob("toys-linear-*/output.log"))
    words = shlex.split(log.read_text().splitlines()[0].removeprefix("# by hand: "))
    settings = dict(word.split("=", 1) for word in words if "=" in word)
    command = [sys.executable, *[w for w in words if "=" not in w][1:]]
    done = ran(*command, cwd=ROOT, env={**os.environ, **settings})
    assert done.returncode == 0
    facts, *lines = map(json.loads, done.stdout.splitlines())
    assert facts == {"model": 32 * 64 + 64 + 64 * 8 + 8, "inputs": ["input.0.0: float32[64, 32]"]}
    statuses = [(line["candidate"], line["status"]) for line in lines[:2]]
    assert statuses == [("eager", "pass"), ("aot_eager", "pass")]
    assert "iterations_per_sample" in lines[2]
    variants = ["aot_eager", "baseline", "eager"]
    assert all(sorted(line["order"]) == sorted(line["seconds"]) == variants for line in lines[3:])
    assert "# compile aot_eager" in done.stderr.splitlines()
