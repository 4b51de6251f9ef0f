"""The formats of other programs: ``--format=jsonl``, ``junit``, ``bencher``, and ``otava`` of a history."""

import csv
import io
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest
from rich.console import Console

from harness.schema import Status
from runner.analysis.derive import summarize
from runner.cli.main import main
from runner.cli.measuring import measure
from runner.engine.executors import Cases, Event, Stop, Work
from runner.reports import render_all
from runner.store.run_folder import RunFolder
from tests.command_line import parsed, refused
from tests.factories import Capture, make_job, make_record, synthetic_run
from tests.unit.test_history import make_run, records, shown


def test_junit_has_a_case_for_each_result_and_says_why_one_is_no_pass() -> None:
    every = [*synthetic_run(), make_record(make_job("a skip"), status=Status.SKIP)]
    root = ET.fromstring(render_all(summarize(every), {"junit"})["junit.xml"])  # noqa: S314 - our own
    counts = {
        name: sum(int(s.get(name, 0)) for s in root) for name in ("tests", "failures", "errors", "skipped")
    }
    own = {name: len(root.findall(f"*/testcase/{name}")) for name in ("failure", "error", "skipped")}
    assert counts["tests"] == len(root.findall("*/testcase")) == len(every)
    assert [*own.values()] == [counts[name] for name in ("failures", "errors", "skipped")]
    assert len(every) - sum(own.values()) == sum(record.status.passed for record in every)
    why = {element.get("type"): element.get("message", "") for element in root.findall("*/testcase/*[@type]")}
    assert "RMS error 0.5 is above the limit" in why["fail_accuracy"]
    assert root.find("*/testcase/error[@type='crash']") is not None
    assert root.find("*/testcase/skipped[@type='skip']") is not None


def test_bencher_has_the_passes_with_the_intervals_of_their_speedups() -> None:
    every = synthetic_run()
    read: dict[str, Any] = json.loads(render_all(summarize(every), {"bencher"})["bencher.json"])
    assert len(read) == sum(record.status.passed and record.samples is not None for record in every)
    for measures in read.values():
        assert set(measures) == {"speedup", "latency", "compilation-latency"}
        assert all(set(value) <= {"value", "lower_value", "upper_value"} for value in measures.values())
    (name,) = (
        name for name in read if name.endswith("-full inductor") and "gains-training-cpu-float32" in name
    )
    assert 1.4 < read[name]["speedup"]["lower_value"] < 1.5 < read[name]["speedup"]["upper_value"] < 1.6


class Told:
    """Yields a record for each job, and keeps what was printed before it is asked for the next."""

    def __init__(self, capture: Capture) -> None:
        self.capture, self.lines = capture, list[list[str]]()

    def run(self, work: Sequence[Work], cases: Cases, stop: Stop) -> Iterator[Event]:
        for item in work:
            yield make_record(item.job, speedup=1.5)
            self.lines.append(self.capture.readouterr().out.splitlines())


def test_each_line_of_jsonl_is_there_while_the_run_goes_on(tmp_path: Path, capsys: Capture) -> None:
    jobs = [make_job(name, candidates=("inductor",)) for name in "abc"]
    folder, told = RunFolder.create(tmp_path / "run", jobs, []), Told(capsys)
    code = measure(folder, jobs, Console(stderr=True), told, frozenset({"jsonl"}))  # type: ignore[arg-type]
    each = [[json.loads(line) for line in lines] for lines in told.lines]
    assert [[(row["model"], row["final"], "q_value" in row) for row in rows] for rows in each] == [
        [(name, False, False)] for name in "abc"
    ]
    last = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(row["model"], row["final"], row["run"]) for row in last] == [
        (name, True, str(tmp_path / "run")) for name in "abc"
    ]
    assert {"status", "verdict", "speedup", "ci_low", "ci_high", "n", "q_value"} <= last[0].keys()
    assert (code, sorted(path.name for path in (tmp_path / "run").iterdir())) == (
        0,
        ["records.jsonl", "run.json"],
    )
    assert main([f"--visualize-logs={tmp_path / 'run'}", "--format=jsonl"]) == 0
    assert [json.loads(line) for line in capsys.readouterr().out.splitlines()] == last


def test_a_series_has_the_results_that_passed_in_every_run(tmp_path: Path) -> None:
    for number, speedup in enumerate((1.5, 1.3)):
        make_run(tmp_path, number, records(speedup), tags=["night", "x,y"])
    make_run(tmp_path, 2, records(1.2, Status.FAIL_ACCURACY))
    assert "1 result of 3 runs, without 1 that some run lacks" in shown(tmp_path, otava=True)
    rows = list(csv.DictReader(io.StringIO((tmp_path / "otava.csv").read_text())))
    (test,) = json.loads((tmp_path / "otava.yaml").read_text())["tests"].values()
    assert [*rows[0]] == [test["time_column"], *test["attributes"], *test["metrics"]]
    assert (test["type"], test["file"]) == ("csv", str(tmp_path / "otava.csv"))
    assert (rows[1]["time"], rows[1]["tags"]) == ("2026-01-02T00:00:00+00:00", "night x,y")
    (metric,) = test["metrics"]
    assert metric == "toys a training float32 cpu full inductor"
    assert [float(row[metric]) for row in rows] == pytest.approx([1.5, 1.3, 1.2], rel=0.01)
    for number in (0, 1):
        make_run(tmp_path / "apart", number, records()[number : number + 1])
    with refused("no result passed in every run of", "--format=otava: "):
        shown(tmp_path / "apart", otava=True)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--history", "--format=html"], "--format: a history has no html; leave it out, or write otava"),
        (["--training", "--format=otava"], "--format: otava is a series of runs; add --history"),
    ],
)
def test_a_format_of_another_action_is_refused(words: list[str], says: str) -> None:
    with refused(says):
        parsed(words)
