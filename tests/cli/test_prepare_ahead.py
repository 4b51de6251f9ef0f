"""``--prepare-ahead``, whole runs. Slow groups of the zoo run with it, too (``tests/zoo/expected.py``)."""

from pathlib import Path

import pytest

from tests.cli.command import TOYS, records, runner, statuses

JOBS = (
    *("--inference", f"--suites={TOYS}", "--compilers=eager,aot_eager", "--threads=1", "--devices=cpu"),
    *("-n4", "--format=console"),
)


@pytest.mark.slow
def test_jobs_that_prepare_side_by_side_have_the_records_that_they_have_alone(tmp_path: Path) -> None:
    beside, alone = tmp_path / "beside", tmp_path / "alone"
    for folder, ahead in ((beside, 2), (alone, 1)):
        done = runner(*JOBS, f"--prepare-ahead={ahead}", f"--output-dir={folder}")
        assert done.returncode in (0, 1), done.stdout + done.stderr
        assert ("Compilation times with a star" in done.stdout) == (ahead > 1)
    assert statuses(beside) == statuses(alone)
    assert len(statuses(beside)) > 4
    timed = [one for one in records(beside) if one["samples"] is not None]
    assert all(one["metrics"]["prepared_beside"] == 1 for one in timed)
    assert all(one["metrics"]["compile_cpu_s"] > 0 for one in timed if one["candidate"] == "aot_eager")
    assert not any("prepared_beside" in one["metrics"] for one in records(alone))
