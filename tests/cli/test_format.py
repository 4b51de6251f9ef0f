"""``--format`` on the real command line: which files there are afterwards, and what is printed."""

from pathlib import Path

import pytest

from tests.cli.command import runner
from tests.factories import make_job, make_record
from tests.unit.test_changes import write


@pytest.fixture
def run(tmp_path: Path) -> Path:
    models = ((1.5, "one"), (1.2, "two"))
    return write(tmp_path / "run", [make_record(make_job(name), speedup=speedup) for speedup, name in models])


def reports_in(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()} - {"records.jsonl"}


def test_only_what_was_asked_for_is_made_and_nothing_printed(run: Path) -> None:
    done = runner("--visualize-logs", str(run), "--format=html,md,")  # a comma too many is no mistake
    assert (done.returncode, done.stderr) == (0, "")
    assert reports_in(run) == {"report.html", "report.md"}
    assert done.stdout.splitlines() == [f"Report: {run}/report.html"]


def test_the_console_alone_leaves_no_file(run: Path) -> None:
    done = runner("--visualize-logs", str(run), "--format", "console")
    assert done.returncode == 0
    assert reports_in(run) == set()
    assert "Geometric mean speedup" in done.stdout
    assert "two" in done.stdout
