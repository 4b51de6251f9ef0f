"""What a person types about finished runs: ``--compare``, and the formats of ``--visualize-logs``."""

import json
from pathlib import Path

import pytest

from harness.schema import Protocol, Status
from tests.cli.command import run_into, runner
from tests.factories import make_job, make_record
from tests.unit.test_changes import measured, write


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """B: one model slower, one lost, one graph break more."""
    folder = tmp_path_factory.mktemp("runs")
    before = measured({f"model_{number}": 1.5 for number in range(5)}, machine="a")
    after = measured({"model_0": 1.5, "model_1": 1.2, "model_4": 1.5}, machine="b")
    after += measured({"model_2": 1.5}, status=Status.CRASH, machine="b")
    after += measured({"model_3": 1.5}, metrics={"graph_breaks": 1}, machine="b")
    return write(folder / "a", before), write(folder / "b", after)


def test_the_terminal_shows_what_changed_and_fails_where_asked(runs: tuple[Path, Path]) -> None:
    done = runner("--compare", *map(str, runs), "--fail-on=regression:5%,regression:50%,parity,graph-breaks")
    assert (done.returncode, done.stderr) == (1, "")
    for sentence in (
        *("1 regressed, 0 improved", "New failures: 1", "pass -> crash (SIGSEGV", "0 -> 1 graph breaks"),
        "--fail-on regression:5 %: FAILED (speedups that fell by more than 5 %, of 4: 1)",
        "--fail-on regression:50 %: passed",
        "--fail-on parity: FAILED (results that passed before and fail now: 1)",
        "--fail-on graph-breaks: FAILED (results with more graph breaks than before: 1)",
    ):
        assert sentence in done.stdout


def test_what_was_found_is_printed_before_a_gate_that_can_tell_nothing(tmp_path: Path) -> None:
    job = make_job(protocol=Protocol(performance=False))
    after = make_record(job, status=Status.CRASH)
    runs = [str(write(tmp_path / "a", [make_record(job)])), str(write(tmp_path / "b", [after]))]
    done = runner("--compare", *runs, "--fail-on=regression:5%,parity")
    assert done.returncode == 1, "a failure is a failure, whatever else has no data"
    assert "New failures: 1" in done.stdout
    assert "--fail-on parity: FAILED" in done.stdout
    assert done.stderr.startswith(
        "error: --fail-on regression:5 %: these runs do not have the data for this gate (no shared result"
    )
    assert done.stderr.count("\n") == 1
    markdown = runner("--compare", *runs, "--fail-on=regression:50%", "--format=md")
    assert markdown.returncode == 2
    assert markdown.stdout.startswith("## What changed between two runs")


def test_files_go_where_asked(runs: tuple[Path, Path], tmp_path: Path) -> None:
    folder = tmp_path / "out" / "deep"
    run_into(folder, "--compare", *map(str, runs))
    assert {path.name for path in folder.iterdir()} == {"changes.md", "changes.json"}
    data = json.loads((folder / "changes.json").read_text())
    assert len(data["changes"]) == 2 * 5, "with the controls"
    assert data["drift"][0]["models"] == 5


# -- --format -----------------------------------------------------------------
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
