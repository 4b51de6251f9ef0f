"""``--history``: every run of a folder is listed, whatever has become of its files."""

import re
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from harness.codec import to_json
from harness.schema import STOPPED, Mode, Record, Status
from runner.analysis.derive import summarize
from runner.cli.main import main
from runner.errors import UsageError
from runner.reports import render_all
from runner.runs.history import runs as history_runs
from runner.runs.history.listing import HistoryRequest, show_history
from runner.runs.history.page import write_page
from runner.runs.history.runs import Run, read_runs, status_changes, trends
from tests.command_line import config_of_words
from tests.factories import make_job, make_record
from tests.unit.test_changes import write

BEGIN = datetime(2026, 1, 1, tzinfo=timezone.utc)
MODELS = ("a", "b")


def records(speedup: float = 1.5, status: Status = Status.PASS, mode: Mode = Mode.TRAINING) -> list[Record]:
    """Inductor on two models; ``status``: of the second."""
    jobs = [make_job(name, candidates=("inductor",), mode=mode) for name in MODELS]
    return [make_record(jobs[0], speedup=speedup), make_record(jobs[1], speedup=speedup, status=status)]


def make_run(
    folder: Path,
    number: int,
    measured: Sequence[Record] | None = None,
    *,
    derived: bool = False,
    **about: Any,
) -> Path:
    """Run ``number``, on day ``number``."""
    measured = records() if measured is None else measured
    jobs = to_json([make_job(name, candidates=("inductor",)) for name in MODELS])
    created = (BEGIN + timedelta(days=number)).isoformat()
    about = {"command": ["-n6"], "created": created, "jobs": jobs, **about}
    run = write(folder / f"run-{number}", measured, **about)
    if derived:
        for name, content in render_all(summarize(measured), {"json"}).items():
            (run / name).write_bytes(content)
        (run / "report.html").touch()
    return run


@pytest.fixture(autouse=True)
def undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Charts take a second each: one test undoes this."""
    monkeypatch.setattr("runner.runs.history.page.chart", lambda *_: "")


def read(folder: Path, name: str) -> Run:
    return next(run for run in read_runs(folder) if run.name == name)


def page(folder: Path) -> str:
    return write_page(folder, read_runs(folder)).read_text()


def shown(folder: Path, **asked: Any) -> str:
    with Console(width=200) as console, console.capture() as printed:
        show_history(HistoryRequest(folder=folder, **asked), console)
    return printed.get()


# -- reading -----------------------------------------------------------------------


def test_a_run_is_read_from_its_summary_or_where_that_is_missing_from_its_records(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = make_run(tmp_path, 0, tags=["base", "night"], derived=True)
    from_records = make_run(tmp_path, 1)
    without = read(tmp_path, from_records.name)
    with monkeypatch.context() as patch:
        patch.setattr(history_runs, "read_run", None)  # would fail
        first = read_runs(tmp_path)[0]
    assert (first.groups, first.statuses) == (without.groups, without.statuses)
    assert (first.name, first.created, first.tags) == (run.name, BEGIN, ("base", "night"))
    assert first.command == "python runner.py -n6"
    assert first.torch == "0.0.0+synthetic"
    assert (first.state, first.link) == ("complete", "./run-0/report.html")
    assert without.link is None


def test_a_run_whose_results_were_cut_short_is_complete_once_each_has_a_whole_record(tmp_path: Path) -> None:
    a, b = records()
    cut = replace(a, rounds_ended=STOPPED)
    make_run(tmp_path, 0, [cut, b])
    make_run(tmp_path, 1, [cut, b, a], derived=True)
    assert [run.state for run in read_runs(tmp_path)] == ["unfinished: 1 of 2 records", "complete"]


def test_what_is_damaged_is_listed_as_damaged(tmp_path: Path) -> None:
    make_run(tmp_path, 0)
    make_run(tmp_path, 1, records()[:1])
    with (make_run(tmp_path, 2, records()[:1]) / "records.jsonl").open("ab") as file:
        file.write(b'{"schema_version": 2, "job"\n')
    (make_run(tmp_path, 3) / "run.json").write_text("[" * 100_000)
    make_run(
        tmp_path,
        4,
        merged_from=[1, {"folder": 2}, {}],
        tags=[1],
        command=[{}],
        created="0001-01-01T00:00:00+05:00",
    )
    for name, file_name, content in (
        ("no plan", "records.jsonl", b"\0\xff{"),
        ("torn plan", "run.json", b'{"jobs": [{"candi'),
        ("odd plan", "run.json", b'{"jobs": [{}]}'),
        ("list", "run.json", b"[[1, 2]]"),
    ):
        (tmp_path / name).mkdir()
        (tmp_path / name / file_name).write_bytes(content)
    (tmp_path / "no run at all").mkdir()
    torn = "damaged: run.json is no plan, or was cut short"
    assert {run.name: run.state for run in read_runs(tmp_path)} == {
        "run-0": "complete",
        "run-1": "unfinished: 1 of 2 records",
        "run-2": "damaged: 1 line of records.jsonl cannot be read",
        "run-3": torn,
        "run-4": "complete",
        "no plan": "damaged: run.json is missing; 1 line of records.jsonl cannot be read",
        **dict.fromkeys(("torn plan", "odd plan", "list"), f"{torn}; records.jsonl is missing"),
    }
    assert "9 runs, newest first; 6 damaged" in page(tmp_path)


def test_parts_of_a_merged_run_are_not_counted_again(tmp_path: Path) -> None:
    for number in range(2):
        make_run(tmp_path, number)
    make_run(tmp_path, 2, merged_from=[{"folder": str(tmp_path / f"run-{number}")} for number in range(2)])
    make_run(tmp_path, 3)
    assert [run.name for run in read_runs(tmp_path)] == ["run-2", "run-3"]
    assert "joined from run-0, run-1" in page(tmp_path)
    part = {"folder": "/elsewhere/run-3", "created": (BEGIN + timedelta(days=9)).isoformat()}
    make_run(tmp_path, 4, merged_from=[part])
    assert "run-3" in {run.name for run in read_runs(tmp_path)}  # another run has this name
    make_run(tmp_path, 5, merged_from=[{**part, "created": (BEGIN + timedelta(days=3)).isoformat()}])
    assert "run-3" not in {run.name for run in read_runs(tmp_path)}


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--history", "{folder}/nowhere"], "nowhere does not exist; give the folder that holds your runs"),
        (["--history", "{folder}/run-0/run.json"], "run.json is a file; give the folder"),
        (["--history", "{folder}/empty"], "--history: there is no run in"),
        (["--history", "{folder}/run-0"], "is a run itself; give the folder that holds your runs"),
        (["--history", "{folder}", "--tag=none"], "--history: no run in"),
    ],
)
def test_bad_input_ends_in_a_sentence(
    words: list[str], sentence: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    make_run(tmp_path, 0)
    (tmp_path / "empty").mkdir()
    assert main([word.format(folder=tmp_path) for word in words]) == 2
    error = capsys.readouterr().err
    assert sentence in error
    assert error.count("\n") == 1
    assert not (tmp_path / "index.html").exists()


def test_tags() -> None:
    assert config_of_words(["--training", "--tag= a b ", "--tag=c"]).tags == ("a b", "c")
    for bad in ("", " ", "a\nb", "x" * 100):
        with pytest.raises(UsageError, match="--tag: "):
            config_of_words(["--training", f"--tag={bad}"])


# -- what is shown -------------------------------------------------------------------


def test_the_list_has_the_newest_first_and_each_mode_by_itself(tmp_path: Path) -> None:
    make_run(tmp_path, 0, records(1.2))
    make_run(tmp_path, 1, [*records(1.5, Status.CRASH), *records(3.0, mode=Mode.INFERENCE)], tags=["night"])
    lines = shown(tmp_path).splitlines()
    assert [line.split()[2] for line in lines if line.startswith("2026-01-0")] == ["run-1", "run-0"]
    assert lines[0] == "2026-01-02 00:00  run-1 [night]"
    assert [re.split("0?x", line.strip())[0] for line in lines if " passed" in line] == [
        "toys, training, float32, cpu, inductor: 1 of 2 passed, 1.5",
        "toys, inference, float32, cpu, inductor: 2 of 2 passed, 3.0",
        "toys, training, float32, cpu, inductor: 2 of 2 passed, 1.2",
    ]
    assert f"--compare {tmp_path / 'run-0'} {tmp_path / 'run-1'}" in lines[-2]
    assert lines[-1] == str(tmp_path / "index.html")


@pytest.mark.parametrize(
    ("filters", "runs"),
    [({"tags": ("base",)}, 1), ({"tags": ("base", "night")}, 2), ({"suites": ("toys",)}, 3)],
)
def test_filters_choose_what_is_listed_and_the_page_has_all(
    tmp_path: Path, filters: dict[str, Any], runs: int
) -> None:
    for number, tags in enumerate((["base", "night"], ["night"], [])):
        make_run(tmp_path, number, tags=tags)
    assert shown(tmp_path, **filters).count("2026-01-0") == runs
    assert "3 runs, newest first" in (tmp_path / "index.html").read_text()
    for nothing in ({"suites": ("others",)}, {"compilers": ("eager",)}):
        with pytest.raises(UsageError, match=r"--history: no run in .* fits these filters"):
            shown(tmp_path, **nothing)


def test_a_status_that_changed_in_the_newest_run_is_named(tmp_path: Path) -> None:
    make_run(tmp_path, 0, records(status=Status.FAIL_ACCURACY))
    make_run(tmp_path, 1, records()[:1])  # run-0 is the last that has the other model
    make_run(tmp_path, 2)
    (sentence,) = status_changes(read_runs(tmp_path))
    assert sentence.startswith("toys b training float32 cpu ")
    assert sentence.endswith(" inductor: fail_accuracy in run-0, pass in run-2")
    assert sentence in shown(tmp_path)
    assert sentence in page(tmp_path)
    make_run(tmp_path, 3, records(status=Status.CRASH), tags=["trial"])
    assert "Changed in the newest run" in shown(tmp_path)
    assert "Changed in the newest run" not in shown(tmp_path, tags=("trial",))
    assert "inductor: pass in run-2, crash in run-3" in shown(tmp_path, compilers=("inductor",))
    eager = [make_record(make_job(name), "eager") for name in MODELS]
    make_run(tmp_path, 4, [*eager, *records()])
    make_run(tmp_path, 5, [*eager, *records(status=Status.CRASH)])
    assert "Changed in the newest run" not in shown(tmp_path, compilers=("eager",))


def test_a_command_of_the_list_can_be_pasted(tmp_path: Path) -> None:
    folder = tmp_path / "my logs"
    folder.mkdir()
    for number in (0, 1):
        make_run(folder, number)
    assert f"--compare '{folder / 'run-0'}' '{folder / 'run-1'}'" in shown(folder)
    make_run(folder, 2, [make_record(make_job("c"), "eager")])  # shares no result with the others
    assert "--compare" not in shown(folder)


def test_a_line_over_time_is_of_one_machine(tmp_path: Path) -> None:
    for number in range(2):
        make_run(tmp_path, number)
    ((title, trend),) = trends(read_runs(tmp_path)).items()
    assert title == "toys, training, float32, cpu on Synthetic CPU"
    assert [run.name for run, _ in trend["inductor"]] == ["run-0", "run-1"]
    elsewhere = [
        replace(record, environment={**record.environment, "device_name": "another"}) for record in records()
    ]
    make_run(tmp_path, 2, elsewhere)
    (trend,) = trends(read_runs(tmp_path)).values()
    assert [run.name for run, _ in trend["inductor"]] == ["run-0", "run-1"]


@pytest.mark.slow
def test_the_page_needs_nothing_from_elsewhere_and_names_are_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()
    for number, name in enumerate(("<script>alert(1)", "javascript:x", "a b#c?d")):
        make_run(tmp_path, number, derived=True, tags=["night <b>"]).rename(tmp_path / name)
    text = page(tmp_path)
    assert text == page(tmp_path)
    assert "<script" not in text
    assert "&lt;script&gt;alert(1)" in text
    assert "night &lt;b&gt;" in text
    assert 'href="./javascript%3Ax/report.html"' in text
    assert 'href="./a%20b%23c%3Fd/report.html"' in text
    assert "default-src 'none'" in text
    assert "#010203" not in text  # the charts have the page's own color
    assert text.count("<svg") == 1
    for panel in ("passed, %", "speedup, geometric mean", "compilation, s", "memory, eager / compiled"):
        assert panel in text
    addresses = {word for word in text.replace('"', " ").split() if "://" in word}
    assert all("www.w3.org" in address for address in addresses)
