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
    timed = [r for r in records(beside) if r["samples"] is not None]
    # on a busy machine, a job may be prepared before the other has begun
    assert {1} <= {r["metrics"].get("prepared_beside") for r in timed} <= {1, None}
    assert all(r["metrics"]["compile_cpu_s"] > 0 for r in timed if r["candidate"] == "aot_eager")
    assert not any("prepared_beside" in r["metrics"] for r in records(alone))
