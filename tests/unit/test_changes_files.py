"""The comparison written out: terminal, Markdown, JSON; and what cannot be read."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from harness.schema import Status
from runner.errors import UsageError
from runner.reports.markdown import LIMIT
from runner.runs.compare.changes import RunChanges, changes_between
from runner.runs.compare.gates import gate_results, gates_asked
from runner.runs.compare.load import load
from runner.runs.compare.output import print_changes, render_json, render_markdown
from tests.factories import HOSTILE_NAMES, HOSTILE_SUITE, make_job, make_record
from tests.unit.test_changes import compared, write


def texts(changes: RunChanges, *gates: str) -> tuple[str, str, dict[str, Any]]:
    """(terminal, Markdown, JSON)"""
    judged, _ = gate_results(changes, gates_asked(gates))
    with Console(width=200, record=True) as console, console.capture() as printed:
        print_changes(changes, judged, console)
    return printed.get(), render_markdown(changes, judged), json.loads(render_json(changes, judged))


def worse(folder: Path) -> RunChanges:
    """In the second run one model fails, another has a graph break more."""
    steady = make_record(make_job("steady"), speedup=1.5)
    before, after = (
        [make_record(make_job("lost"), status=status), make_record(make_job("broken"), metrics=metrics)]
        for status, metrics in (
            (Status.PASS, {"graph_breaks": 2}),
            (Status.FAIL_ACCURACY, {"graph_breaks": 3}),
        )
    )
    return compared(folder, [steady, *before], [steady, *after])


def test_what_is_no_run_is_refused_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "records.txt").write_text("")
    for path, sentence in (
        (tmp_path / "nowhere", r"no run in .*nowhere; give the folder of a run, or its records\.jsonl"),
        (tmp_path, "there is no run in"),
        (tmp_path / "records.txt", "holds no result"),
        (tmp_path / "fifo", "there is no run in .*fifo"),
        (Path("/dev/zero"), "there is no run in /dev/zero"),
    ):
        with pytest.raises(UsageError, match=sentence):
            load("--compare", path)


def test_a_damaged_plan_is_refused(tmp_path: Path) -> None:
    run = write(tmp_path / "a", [make_record(make_job("one"))])
    (run / "run.json").write_text("{")
    with pytest.raises(UsageError, match=r"--compare: .*run\.json is damaged"):
        load("--compare", run)


def test_no_gate_passes_for_a_damaged_run(tmp_path: Path) -> None:
    records = [make_record(make_job("one"), speedup=1.5), make_record(make_job("two"), speedup=1.5)]
    whole, torn = write(tmp_path / "a", records), write(tmp_path / "b", records)
    lines = (torn / "records.jsonl").read_text().splitlines()
    (torn / "records.jsonl").write_text(lines[0] + "\n" + lines[1][:100] + "\n")
    changes = changes_between(load("--compare", whole), load("--compare", torn))
    results, refusals = gate_results(changes, gates_asked(["regression", "parity", "graph-breaks"]))
    assert results == []
    assert "b has damaged lines, so results may be missing" in str(refusals[0])


def test_outputs_say_the_same(tmp_path: Path) -> None:
    printed, markdown, data = texts(worse(tmp_path), "parity", "graph-breaks")
    for text in (printed, markdown):
        plain = text.replace("\\", "").replace("&gt;", ">")
        assert "New failures: 1" in plain
        assert "pass -> fail_accuracy" in plain
        assert "2 -> 3 graph breaks" in plain
        assert "Drift: eager in B takes" in plain
        assert "assumed" in plain
    assert "--fail-on parity: FAILED (results that passed before and fail now: 1)" in printed
    assert [gate["failed"] for gate in data["gates"]] == [True, True]
    assert {change["first"]["name"] for change in data["changes"]} == {"steady", "lost", "broken"}


@pytest.mark.slow
def test_markdown_fits_into_a_comment_and_nothing_in_it_is_markup(tmp_path: Path) -> None:
    names = [f"{name} {number}" for number in range(80) for name in HOSTILE_NAMES]
    jobs = [make_job(name, suite=HOSTILE_SUITE, candidates=("inductor",)) for name in names]
    before = [make_record(job) for job in jobs]
    after = [make_record(job, status=Status.CRASH) if n % 2 else before[n] for n, job in enumerate(jobs)]
    printed, markdown, _ = texts(compared(tmp_path, before, after), "parity")
    assert len(markdown.encode()) < LIMIT
    assert "<script" not in markdown
    assert "@someone" not in markdown
    assert "omitted, to keep this short: --format=json has all of them" in markdown
    assert "\x1b" not in printed
    assert "[red]markup[/red]" in printed


def test_a_narrow_terminal_drops_columns_and_says_so(tmp_path: Path) -> None:
    with Console(width=80) as console, console.capture() as printed:
        print_changes(worse(tmp_path), (), console)
    lines = printed.get().splitlines()
    assert any(line.startswith("Columns omitted for width: ") for line in lines)
    footer = lines.index(next(line for line in lines if line.startswith("A speedup counts as changed")))
    assert all(len(line) <= 80 for line in lines[2 : footer + 3])
    assert any(line.startswith("broken") for line in lines)
