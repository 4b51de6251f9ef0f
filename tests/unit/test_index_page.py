"""``--index``: every run is in the list, whatever has become of its files."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest

from harness.codec import to_json
from harness.schema import Record, Status
from runner.analysis.derive import summarize
from runner.cli.main import main
from runner.reports import render_all
from runner.runs.history import page as history_page
from runner.runs.history.enter import enter, entry_of
from runner.runs.history.page import read_run, write_page
from runner.store.record_file import append_record
from tests.factories import make_job, make_record

JOBS = tuple(make_job(name, candidates=("inductor",)) for name in ("a", "b"))


def records(speedup: float = 1.5, status: Status = Status.PASS) -> list[Record]:
    return [make_record(JOBS[0], speedup=speedup), make_record(JOBS[1], speedup=speedup, status=status)]


def make_run(
    folder: Path, found: Sequence[Record], day: int = 1, *, derived: bool = False, planned: int = 2
) -> Path:
    folder.mkdir(parents=True)
    plan = {
        "command": ["--suites=toys", "--training"],
        "created": f"2026-01-{day:02}T10:00:00+00:00",
        "jobs": to_json(JOBS[:planned]),
    }
    (folder / "run.json").write_text(json.dumps(plan))
    (folder / "records.jsonl").touch()
    for record in found:
        append_record(folder / "records.jsonl", record)
    if derived:
        for name, content in render_all(summarize(found), {"json"}).items():
            (folder / name).write_bytes(content)
        (folder / "report.html").touch()
    return folder


def page(folder: Path) -> str:
    write_page(folder)
    return (folder / "index.html").read_text()


def test_runs_are_listed_newest_first_with_links_and_a_line_over_time(tmp_path: Path) -> None:
    make_run(tmp_path / "older", records(1.2), 1, derived=True)
    make_run(tmp_path / "newer", records(1.5, Status.FAIL_ACCURACY), 3)
    text = page(tmp_path)
    assert '<a href="./older/report.html">older</a>' in text
    assert "newer/report.html" not in text  # there is none
    assert text.index("newer") < text.index("older")
    assert "50%, 1/2" in text
    assert "100%, 2/2" in text
    assert text.count("<svg") == 1
    assert "over time: toys, training, float32, cpu on synthetic cpu" in text.lower()
    assert write_page(tmp_path) == f"2 runs -> {tmp_path / 'index.html'}"
    assert (tmp_path / "index.html").read_text() == text


def test_it_needs_nothing_from_elsewhere(tmp_path: Path) -> None:
    for day in (1, 2):
        make_run(tmp_path / str(day), records(), day)
    text = page(tmp_path)
    assert "<script" not in text
    assert "default-src 'none'" in text
    assert "#010203" not in text  # the charts have the page's own color
    assert "currentColor" in text
    addresses = {word for word in text.replace('"', " ").split() if "://" in word}
    assert all("www.w3.org" in address for address in addresses)


def test_names_are_text(tmp_path: Path) -> None:
    for day, name in enumerate(("<script>alert(1)", "javascript:x", "a b#c?d")):
        make_run(tmp_path / name, records(), day + 1, derived=True)
    text = page(tmp_path)
    assert "<script" not in text
    assert "&lt;script&gt;alert(1)" in text
    assert 'href="./javascript%3Ax/report.html"' in text
    assert 'href="./a%20b%23c%3Fd/report.html"' in text


def test_a_run_that_was_entered_is_read_again_only_where_its_file_has_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = make_run(tmp_path / "run", records())
    known = entry_of(folder)
    with monkeypatch.context() as patch:
        patch.setattr(history_page, "load_records", None)  # would fail
        assert read_run(folder, known) == read_run(folder, known)
        assert read_run(folder, known).state == "complete"
    append_record(folder / "records.jsonl", make_record(JOBS[0], "later"))
    assert len(read_run(folder, known).run.results) == 3


def test_the_page_shows_what_the_history_knows(tmp_path: Path) -> None:
    for day in (1, 2):
        run = make_run(tmp_path / f"run-{day}", records(), day)
        about = json.loads((run / "run.json").read_text())
        (run / "run.json").write_text(json.dumps({**about, "tags": ["night <b>"]}))
        enter(run)
    shutil.rmtree(tmp_path / "run-1")

    text = page(tmp_path)
    assert "folder gone" in text
    assert "night &lt;b&gt;" in text
    assert text.count("<svg") == 1, "what was measured in the run that is gone is in the chart"
    for panel in ("passed, %", "speedup, geometric mean", "compilation, s", "memory, eager / compiled"):
        assert panel in text


def test_what_changed_beyond_noise_is_on_the_page(tmp_path: Path) -> None:
    for day, compiled in ((1, Status.PASS), (2, Status.CRASH)):
        make_run(tmp_path / f"run-{day}", records(1.5, compiled), day)
    text = page(tmp_path)
    assert "Changed beyond noise in the newest run:" in text
    assert "inductor: pass rate 1 lost (in run-2)" in text


def test_an_index_that_is_damaged_costs_nothing(tmp_path: Path) -> None:
    make_run(tmp_path / "run", records())
    (tmp_path / "history.sqlite").write_bytes(b"nonsense" * 1000)
    assert write_page(tmp_path) == f"1 run -> {tmp_path / 'index.html'}"


def test_what_is_damaged_is_listed_as_damaged(tmp_path: Path) -> None:
    make_run(tmp_path / "fine", records())
    make_run(tmp_path / "stopped", records()[:1])
    line = make_run(tmp_path / "line", records())
    with (line / "records.jsonl").open("ab") as file:
        file.write(b'{"schema_version": 2, "job"\n')
    for name, file_name, content in (
        ("no plan", "records.jsonl", b"\0\xff{"),
        ("torn plan", "run.json", b'{"jobs": [{"candi'),
        ("odd plan", "run.json", b'{"jobs": [{}]}'),
        ("list", "run.json", b"[[1, 2]]"),
    ):
        (tmp_path / name).mkdir()
        (tmp_path / name / file_name).write_bytes(content)
    deep = make_run(tmp_path / "deep", records())
    (deep / "run.json").write_text("[" * 100_000)
    (tmp_path / "no run at all").mkdir()
    states = {path.name: read_run(path).state for path in sorted(tmp_path.iterdir())}
    assert states["fine"] == "complete"
    assert states["stopped"] == "unfinished: 1 of 2 records"
    assert states["line"] == "damaged: 1 line of records.jsonl cannot be read"
    assert states["no plan"] == "damaged: run.json is missing; 1 line of records.jsonl cannot be read"
    for name in ("torn plan", "odd plan", "list"):
        assert states[name] == "damaged: run.json is no plan, or was cut short; records.jsonl is missing"
    assert states["deep"] == "damaged: run.json is no plan, or was cut short"
    assert "8 runs, 6 damaged" in write_page(tmp_path)
    assert "no run at all" not in (tmp_path / "index.html").read_text()


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--index", "{folder}/nowhere"], "--index: there is no folder"),
        (["--index", "{folder}/empty"], "--index: there is no run in"),
        (["--index", "{folder}/run"], "is a run itself; give the folder that holds it"),
        (["--index", "{folder}", "--list"], "--list and --index exclude each other"),
    ],
)
def test_bad_input_ends_in_a_sentence(
    words: list[str], sentence: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    make_run(tmp_path / "run", [])
    (tmp_path / "empty").mkdir()
    assert main([word.format(folder=tmp_path) for word in words]) == 2
    assert sentence in capsys.readouterr().err


def test_the_command_line_makes_the_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make_run(tmp_path / "run", records())
    assert main(["--index", str(tmp_path)]) == 0
    assert capsys.readouterr().out == f"1 run -> {tmp_path / 'index.html'}\n"
