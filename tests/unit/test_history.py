"""The index of runs: entered as they end, made again, filtered, drawn; what is beyond noise is marked."""

from __future__ import annotations

import json
import multiprocessing
import random
import shutil
import sqlite3
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from harness.schema import Status
from runner.errors import UsageError
from runner.runs.history.asked import Asked, since
from runner.runs.history.command import show_history
from runner.runs.history.enter import enter, entry_of, rebuild
from runner.runs.history.index import INDEX, VERSION, IndexedRun, read_entries, write_entry
from runner.runs.history.listing import matching
from runner.runs.history.plot import render
from runner.runs.history.trends import latest_changes, trends
from runner.store.record_file import append_record
from tests.command_line import config_of_words
from tests.factories import make_job, make_record

BEGIN = datetime(2026, 1, 1, tzinfo=timezone.utc)
MODELS = 6


def make_run(folder: Path, number: int, *, about: dict[str, Any] | None = None, **changes: Any) -> Path:
    """Run ``number``, on day ``number``: inductor and the control on a few models, with some noise."""
    run = folder / f"run-{number}"
    run.mkdir(parents=True)
    created = (BEGIN + timedelta(days=number)).isoformat()
    facts = {"command": ["--training"], "created": created, "jobs": [], **(about or {})}
    (run / "run.json").write_text(json.dumps(facts))
    rng = random.Random(number)
    wanted = {"speedup": 1.5, "compilation_s": 5.0, "status": Status.PASS, **changes}
    for model in range(MODELS):
        job = make_job(f"model_{model}", candidates=("eager", "inductor"))
        append_record(
            run / "records.jsonl",
            make_record(job, "eager", speedup=1 + rng.gauss(0, 0.005), compilation_s=0, machine=str(number)),
        )
        append_record(
            run / "records.jsonl",
            make_record(
                job,
                "inductor",
                speedup=wanted["speedup"] * (1 + rng.gauss(0, 0.005)),
                compilation_s=wanted["compilation_s"] * (1 + rng.gauss(0, 0.05)),
                memory_ratio=1.2,
                status=wanted["status"] if model == 0 else Status.PASS,
                machine=str(number),
            ),
        )
    return run


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two steady runs, one with a failure, then a slower compiler, then a slower compilation."""
    folder = tmp_path_factory.mktemp("story")
    make_run(folder, 0, about={"tags": ["base", "night"]})
    make_run(folder, 1, about={"tags": ["night"]})
    make_run(folder, 2, status=Status.CRASH)
    make_run(folder, 3, speedup=1.35)
    make_run(folder, 4, speedup=1.35, compilation_s=8.0)
    rebuild(folder)
    return folder


def entries(folder: Path) -> tuple[IndexedRun, ...]:
    return read_entries(folder / INDEX)


def marks(folder: Path) -> dict[str, set[str]]:
    (section,) = trends(entries(folder))
    return {point.run: set(point.marks or ()) for point in section.lines["inductor"]}


def test_changes_beyond_noise_are_marked_and_no_others(story: Path) -> None:
    assert marks(story) == {
        "run-0": set(),
        "run-1": set(),
        "run-2": {"pass rate"},
        "run-3": {"pass rate", "speedup"},
        "run-4": {"compile time"},
    }


def test_no_change_is_marked_where_there_is_none(tmp_path: Path) -> None:
    for number in range(12):
        make_run(tmp_path, number)
    rebuild(tmp_path)
    marked = [found for found in marks(tmp_path).values() if found]
    assert len(marked) <= 1


def test_the_newest_change_is_told(story: Path) -> None:
    (sentence,) = latest_changes(trends(entries(story)))
    assert sentence.startswith("toys, training, float32, cpu on Synthetic CPU, inductor: compile time 1.")
    assert sentence.endswith("(in run-4)")


def test_a_run_is_entered_as_it_is_in_its_folder(story: Path) -> None:
    first = entries(story)[0]
    assert first == entry_of(story / "run-0")
    assert (first.name, first.created, first.tags) == ("run-0", BEGIN, ("base", "night"))
    assert first.facts["torch"] == "0.0.0+synthetic"
    assert first.command == "python runner.py --training"
    assert len(first.results) == 2 * MODELS


def test_entering_twice_keeps_one(tmp_path: Path) -> None:
    run = make_run(tmp_path, 0)
    enter(run)
    append_record(run / "records.jsonl", make_record(make_job("later"), "inductor"))
    enter(run)
    (entry,) = entries(tmp_path)
    assert len(entry.results) == 2 * MODELS + 1


def test_rebuilding_says_what_is_gone(tmp_path: Path) -> None:
    for number in range(3):
        enter(make_run(tmp_path, number))
    shutil.rmtree(tmp_path / "run-1")
    assert len(entries(tmp_path)) == 3, "what was measured is remembered when its folder is gone"
    (tmp_path / "no run").mkdir()
    assert "2 runs -> " in rebuild(tmp_path)
    assert [entry.name for entry in entries(tmp_path)] == ["run-0", "run-2"]


def test_a_run_that_cannot_be_read_is_left_out_by_name(tmp_path: Path) -> None:
    make_run(tmp_path, 0)
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "records.jsonl").write_text("nonsense\n")
    assert "1 run -> " in (sentence := rebuild(tmp_path))
    assert "left out, because they cannot be read: broken (it holds no record)" in sentence


# -- damage, and several at once ---------------------------------------------------


def damage(path: Path, kind: str) -> None:
    if kind == "nonsense":
        path.write_bytes(b"nonsense" * 1000)
    elif kind == "torn":
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    elif kind == "newer":
        with sqlite3.connect(path) as index:
            index.execute(f"pragma user_version = {VERSION + 1}")
    elif kind == "foreign":
        path.unlink()
        with sqlite3.connect(path) as index:
            index.execute("create table somebody_elses (x)")
    elif kind == "odd row":
        with sqlite3.connect(path) as index:
            index.execute("update results set result = '{}'")


@pytest.mark.parametrize("kind", ["nonsense", "torn", "newer", "foreign", "odd row"])
def test_a_damaged_index_is_one_sentence_and_can_be_made_again(
    tmp_path: Path, kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for number in range(3):
        enter(make_run(tmp_path, number))
    damage(tmp_path / INDEX, kind)
    with pytest.raises(UsageError, match=r"rebuild it from the run folders: .* --rebuild") as caught:
        entries(tmp_path)
    assert str(caught.value).startswith("--history: ")
    assert "\n" not in str(caught.value)
    run = make_run(tmp_path, 3)
    enter(run)  # must not raise
    said = capsys.readouterr().err
    if kind != "odd row":
        assert said.startswith("note: this run was not entered in ")
        assert said.count("\n") == 1
    rebuild(tmp_path)
    assert [entry.name for entry in entries(tmp_path)] == [f"run-{number}" for number in range(4)]


def test_a_folder_that_cannot_be_written_costs_a_note(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = make_run(tmp_path, 0)
    (tmp_path / INDEX).mkdir()
    enter(run)
    assert capsys.readouterr().err.startswith("note: this run was not entered in ")


def _enter_many(folder: Path, numbers: Sequence[int]) -> None:
    entry = entry_of(folder / "run-0")
    for number in numbers:
        write_entry(folder / INDEX, replace(entry, name=f"many-{number}"))


def test_several_may_enter_at_once(tmp_path: Path) -> None:
    make_run(tmp_path, 0)
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda part: _enter_many(tmp_path, range(part * 5, part * 5 + 5)), range(4)))
    assert len(entries(tmp_path)) == 20


@pytest.mark.slow  # three interpreters start
def test_programs_may_enter_at_once(tmp_path: Path) -> None:
    make_run(tmp_path, 0)
    context = multiprocessing.get_context("spawn")
    programs = [
        context.Process(target=_enter_many, args=(tmp_path, range(part * 20, part * 20 + 20)))
        for part in range(3)
    ]
    for program in programs:
        program.start()
    for program in programs:
        program.join(60)
        assert program.exitcode == 0
    assert len(entries(tmp_path)) == 60


def test_there_is_no_index_yet(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"there is no .*history\.sqlite; rebuild it"):
        entries(tmp_path)
    with pytest.raises(UsageError, match="there is no run in"):
        rebuild(tmp_path)
    with pytest.raises(UsageError, match="there is no folder"):
        rebuild(tmp_path / "nowhere")


# -- filters, the list, the picture --------------------------------------------------


@pytest.mark.parametrize(
    ("filters", "runs"),
    [
        ({}, 5),
        ({"tags": ("base",)}, 1),
        ({"tags": ("base", "night")}, 2),
        ({"since": BEGIN + timedelta(days=3)}, 2),
        ({"suites": ("toys",)}, 5),
        ({"suites": ("others",)}, 0),
        ({"compilers": ("inductor",)}, 5),
        ({"compilers": ("aot_eager",)}, 0),
    ],
)
def test_filters(story: Path, filters: dict[str, Any], runs: int) -> None:
    found = matching(entries(story), Asked(folder=story, **filters))
    assert len(found) == runs
    if filters.get("compilers"):
        assert all(len(entry.results) == MODELS for entry in found), "only the results that fit"


def test_times_since() -> None:
    now = datetime(2026, 3, 10, 12, tzinfo=timezone.utc)
    assert since("36h", now) == now - timedelta(hours=36)
    assert since("2w", now) == now - timedelta(weeks=2)
    assert since("2026-01-02", now) == datetime(2026, 1, 2, tzinfo=timezone.utc)
    assert since("2026-01-02T03:04:05+01:00", now) == datetime(2026, 1, 2, 2, 4, 5, tzinfo=timezone.utc)
    for text in ("", "yesterday", "7", "d", "2026-13-01", "99999d"):
        with pytest.raises(UsageError, match=r"--since: .* is not a time"):
            since(text, now)


def test_tags() -> None:
    assert config_of_words(["--training", "--tag= a b ", "--tag=c"]).tags == ("a b", "c")
    for bad in ("", " ", "a\nb", "x" * 100):
        with pytest.raises(UsageError, match="--tag: "):
            config_of_words(["--training", f"--tag={bad}"])


def shown(folder: Path, formats: frozenset[str] | None = None, **asked: Any) -> str:
    with Console(width=140) as console, console.capture() as printed:
        assert show_history(Asked(folder=folder, **asked), formats, console) == 0
    return printed.get()


def test_the_list_and_the_picture(story: Path) -> None:
    text = shown(story)
    lines = text.splitlines()
    assert [line.split()[2] for line in lines if line.startswith("2026-01-0")] == [
        f"run-{number}" for number in (4, 3, 2, 1, 0)
    ]
    assert "[base, night]" in text
    assert "92%, 11/12" in text
    assert "inductor 1.50x, 6/6" in text
    assert "Changed beyond noise in the newest run:" in text
    assert (story / "history.png").read_bytes().startswith(b"\x89PNG")
    drawn = (story / "history.svg").read_text()
    assert "1 lost" in drawn
    assert "0.90x" in drawn


def test_a_deleted_run_is_shown_as_gone(tmp_path: Path) -> None:
    for number in range(2):
        enter(make_run(tmp_path, number))
    shutil.rmtree(tmp_path / "run-0")
    text = shown(tmp_path, frozenset({"console"}))
    assert text.count("(folder gone)") == 1
    assert not (tmp_path / "history.png").exists()


def test_formats_and_filters_that_fit_nothing(story: Path) -> None:
    with pytest.raises(UsageError, match="--format: the history has no md; choose from console, png, svg"):
        shown(story, frozenset({"md"}))
    with pytest.raises(UsageError, match=r"none of the 5 runs in .* fits these filters"):
        shown(story, tags=("nothing",))


def test_the_same_history_gives_the_same_picture(story: Path) -> None:
    found = trends(entries(story))
    assert render(found) == render(found)
    assert render(()) == {}


def test_a_joined_run_stands_for_its_parts(tmp_path: Path) -> None:
    for number in range(2):
        make_run(tmp_path, number)
    joined = {"merged_from": [{"folder": str(tmp_path / f"run-{number}")} for number in range(2)]}
    make_run(tmp_path, 2, about=joined)
    make_run(tmp_path, 3)
    rebuild(tmp_path)
    (section,) = trends(entries(tmp_path))
    assert [point.run for point in section.lines["inductor"]] == ["run-2", "run-3"]


def test_other_machines_are_other_lines(tmp_path: Path) -> None:
    for number in range(2):
        enter(make_run(tmp_path, number))
    first, second = entries(tmp_path)
    assert trends((first, replace(second, machine="another"))) == ()
