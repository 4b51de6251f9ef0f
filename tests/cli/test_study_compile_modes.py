"""Study C by its command, with real compilers: the form for CI."""

import subprocess
import sys
from pathlib import Path

import pytest

from runner.store.record_file import read_records
from studies.compile_modes.run import EXPECTATIONS, PARTS
from tests.cli.command import ROOT
from tests.command_line import ran
from tests.factories import known


def studies(*words: str) -> subprocess.CompletedProcess[str]:
    return ran(sys.executable, "-m", "studies", *words, cwd=ROOT, timeout=600)


@pytest.mark.long
def test_the_quick_form_compiles_runs_and_reports(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    done = studies("compile-modes", "--quick", "--device=cpu", f"--output-dir={folder}")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "4 of 4 (model, mode) passed parity" in done.stdout
    run_records = [r for part in PARTS for r in read_records(folder / part / "records.jsonl").records]
    assert len(run_records) == 4
    for record in run_records:
        assert record.first_calls_s[0] == max(record.first_calls_s)
        assert len(record.first_calls_s) > 3
        assert record.metrics["compile_cache_hits"] == 0  # each mode compiles with empty caches
        assert len(known(record.samples)) == 6
        assert bool(record.metrics["kernels_autotuned"]) == (record.candidate == "inductor_max_autotune")
    report = (folder / EXPECTATIONS).read_bytes()
    assert studies("report", str(folder)).returncode == 0
    assert (folder / EXPECTATIONS).read_bytes() == report
