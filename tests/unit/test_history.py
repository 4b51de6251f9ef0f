"""``--history``: every run of a folder is listed, whatever has become of its files."""

import re
from collections.abc import Sequence
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from harness.codec import to_json
from harness.schema import Mode, Record, Status
from runner.analysis.derive import summarize
from runner.cli.main import main
from runner.errors import UsageError
from runner.reports import render_all
from runner.runs.history import Filter, read_runs, show_history, status_changes
from tests.factories import Capture, make_job, make_record
from tests.unit.test_changes import write

BEGIN = datetime(2026, 1, 1, tzinfo=timezone.utc)
MODELS = ("a", "b")


def records(speedup: float = 1.5, status: Status = Status.PASS, mode: Mode = Mode.TRAINING) -> list[Record]:
    """Inductor on two models; ``status``: of the second."""
    jobs = [make_job(name, candidates=("inductor",), mode=mode) for name in MODELS]
    return [make_record(jobs[0], speedup=speedup), make_record(jobs[1], speedup=speedup, status=status)]


def make_run(folder: Path, number: int, measured: Sequence[Record] | None = None, **about: Any) -> Path:
    """Run ``number``, on day ``number``, with its summary."""
    measured = records() if measured is None else measured
    jobs = to_json([make_job(name, candidates=("inductor",)) for name in MODELS])
    created = (BEGIN + timedelta(days=number)).isoformat()
    run = write(
        folder / f"run-{number}", measured, **{"command": ["-n6"], "created": created, "jobs": jobs, **about}
    )
    for name, content in render_all(summarize(measured), {"json"}).items():
        (run / name).write_bytes(content)
    return run


def shown(folder: Path, **asked: Any) -> str:
    otava = bool(asked.pop("otava", False))
    with Console(width=200) as console, console.capture() as printed:
        show_history(folder, Filter(**asked), console, otava=otava)
    return printed.get()


def page(folder: Path) -> str:
    shown(folder)
    return (folder / "index.html").read_text()


def test_a_run_is_read_from_its_plan_and_its_summary(tmp_path: Path) -> None:
    (make_run(tmp_path, 0, tags=["base", "night"]) / "report.html").touch()
    make_run(tmp_path, 1)
    first, second = read_runs(tmp_path)
    assert (first.name, first.created, first.tags) == ("run-0", BEGIN, ("base", "night"))
    assert (first.command, first.torch, first.state) == ("python runner.py -n6", "0.0.0+synthetic", "")
    assert (first.link, second.link) == ("./run-0/report.html", None)


def test_what_cannot_be_read_is_listed_with_the_reason(tmp_path: Path) -> None:
    make_run(tmp_path, 0, records()[:1])
    (make_run(tmp_path, 1) / "summary.json").unlink()
    (make_run(tmp_path, 2) / "run.json").write_text("[" * 100_000)
    summary = make_run(tmp_path, 3) / "summary.json"  # of an older version
    summary.write_text(summary.read_text().replace('"schema_version": 2', '"schema_version": 1'))
    (tmp_path / "no run").mkdir()
    states = {run.name: run.state.replace(str(tmp_path), "DIR") for run in read_runs(tmp_path)}
    assert states == {
        "run-0": "unfinished: 1 of 2 results",
        "run-1": "no summary.json; --visualize-logs=DIR/run-1 makes it",
        "run-2": "run.json cannot be read",
        "run-3": "summary.json cannot be read; --visualize-logs=DIR/run-3 makes it anew",
    }
    assert "4 runs, newest first" in page(tmp_path)


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
def test_bad_input_is_a_sentence(words: list[str], sentence: str, tmp_path: Path, capsys: Capture) -> None:
    make_run(tmp_path, 0)
    (tmp_path / "empty").mkdir()
    assert main([word.format(folder=tmp_path) for word in words]) == 2
    error = capsys.readouterr().err
    assert sentence in error
    assert error.count("\n") == 1
    assert not (tmp_path / "index.html").exists()


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


def test_filters_choose_the_list_the_page_has_all(tmp_path: Path) -> None:
    for number, tags in enumerate((["base", "night"], ["night"], [])):
        make_run(tmp_path, number, tags=tags)
    asked: list[dict[str, Any]] = [{"tags": ("base",)}, {"tags": ("base", "night")}, {"suites": ("toys",)}]
    assert [shown(tmp_path, **filters).count("2026-01-0") for filters in asked] == [1, 2, 3]
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


def test_names_are_text_and_the_page_needs_nothing_from_elsewhere(tmp_path: Path) -> None:
    for number, name in enumerate(("<script>alert(1)", "javascript:x", "a b#c?d")):
        run = make_run(tmp_path, number, tags=["night <b>"])
        (run / "report.html").touch()
        run.rename(tmp_path / name)
    text = page(tmp_path)
    assert text == page(tmp_path)
    links = [f'href="./{name}/report.html"' for name in ("javascript%3Ax", "a%20b%23c%3Fd")]
    for there in ("&lt;script&gt;alert(1)", "night &lt;b&gt;", *links, "default-src 'none'"):
        assert there in text
    assert not any(absent in text for absent in ("<script", "://"))
