"""``--processes`` and ``--calibrate``, whole runs."""

from pathlib import Path

import pytest

from runner.store.calibrations import Calibration, Tau, calibrations_path, conditions_of, keep
from tests.cli.command import TOYS, records, runner


@pytest.mark.slow
def test_several_processes_make_one_record_a_candidate(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    done = runner(
        *("--training", f"--suites={TOYS}", "--only=linear", "--compilers=eager,aot_eager", "--threads=1"),
        *("--processes=2", "-n8", "--devices=cpu", "--format=csv,console", f"--output-dir={folder}"),
    )
    assert done.returncode == 0, done.stdout + done.stderr
    run_records = records(folder)
    assert {record["candidate"] for record in run_records} == {"eager", "aot_eager"}
    for record in run_records:
        assert record["samples"]["rounds_by_process"] == [8, 8]
        assert len(record["samples"]["baseline_s"]) == 16
        assert record["parity"] is not None
        assert record["environment"]["worker"] != "forked"  # forks of one host have one memory layout


@pytest.mark.slow
def test_a_calibration_is_used_by_later_runs(tmp_path: Path) -> None:
    where = ("--training", f"--suites={TOYS}", "--only=linear", "--threads=1", "-dcpu", "--format=console")
    done = runner("--calibrate", *where, "--compilers=eager", "-n8", f"--output-dir={tmp_path / 'first'}")
    (first,) = records(tmp_path / "first")
    assert first["samples"]["rounds_by_process"] == [8] * 4
    said = {
        0: "Standard deviation of a speedup between processes",
        1: "nothing was calibrated",
    }  # a busy machine
    assert said[done.returncode] in done.stdout + done.stderr
    tau = Tau(kind="eager", mode="training", sd=0.001, low=0, high=0.01, models=1, processes=4)
    known = Calibration(date="2026-11-23", conditions=conditions_of(first["environment"]), taus=(tau,))
    keep("--calibrate", [known], calibrations_path())
    done = runner(*where, "--compilers=eager", "--quick", f"--output-dir={tmp_path / 'later'}")
    assert "variation between processes, calibrated on 2026-11-23" in " ".join(done.stdout.split())
    (record,) = records(tmp_path / "later")
    assert (record["calibrated"], record["assumed_between_sd"]) == ("2026-11-23", 0.001)
