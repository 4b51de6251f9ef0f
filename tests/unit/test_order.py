"""The order in which jobs begin: by the compilation times of earlier runs; tables keep the plan's order."""

from __future__ import annotations

import io
import json
import sqlite3
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from harness.schema import Job, Record, Status
from runner.cli.commands import job_command
from runner.cli.measuring import measure
from runner.engine.executors import Work
from runner.engine.executors.local import LocalExecutor
from runner.engine.executors.order import ordered, weights
from runner.runs.history.enter import enter
from runner.runs.history.expected import expected_beside
from runner.runs.history.index import INDEX
from runner.store.record_file import read_records
from runner.store.run_folder import RECORDS, RUN, RunFolder, read_run
from tests.factories import make_job, make_record

COMPILERS = ("inductor", "aot_eager")
SECONDS = {"slow": 60.0, "fast": 2.0, "middle": 20.0}


def work_of(lengths: list[float]) -> list[Work]:
    jobs = [make_job(f"m{place}") for place in range(len(lengths))]
    return [Work(job=job, candidates=("a",), expected_s=s) for job, s in zip(jobs, lengths, strict=True)]


def waves_of(jobs: list[Work], first: int, at_once: int) -> list[list[float]]:
    times = [one.expected_s for one in jobs]
    return [times[:first], *(times[i : i + at_once] for i in range(first, len(times), at_once))]


@given(st.lists(st.floats(0, 100), min_size=1, max_size=40), st.integers(1, 9))
def test_waves_are_those_of_longest_first_in_reverse(lengths: list[float], at_once: int) -> None:
    work = work_of(lengths)
    jobs, first = ordered(work, at_once)
    assert sorted(one.job.key for one in jobs) == sorted(one.job.key for one in work)
    if len(set(lengths)) < 2:
        assert jobs == work
        assert first == at_once
        return
    waves = waves_of(jobs, first, at_once)
    longest_first = sorted(lengths, reverse=True)
    assert waves[::-1] == [longest_first[i : i + at_once] for i in range(0, len(lengths), at_once)]


def test_one_at_a_time_the_shortest_is_first_and_equal_jobs_keep_the_plans_order() -> None:
    jobs, first = ordered(work_of([3, 1, 2, 1, 3]))
    assert [one.job.case.name for one in jobs] == ["m1", "m3", "m2", "m0", "m4"]
    assert first == 1


def test_weights_are_relative_to_the_mean() -> None:
    assert [*weights(work_of([1, 2, 3])).values()] == [0.5, 1.0, 1.5]
    assert [*weights(work_of([0, 0])).values()] == [1.0, 1.0]


# -- what is expected ------------------------------------------------------------------


def planned(*names: str, **changes: object) -> list[Job]:
    return [replace(make_job(name, candidates=COMPILERS), **changes) for name in names]  # type: ignore[arg-type]


def earlier_run(folder: Path, name: str = "run-1", factor: float = 1.0, created: str = "2026-01-01") -> None:
    run = folder / name
    run.mkdir(parents=True)
    (run / RUN).write_text(json.dumps({"command": [], "created": f"{created}T00:00:00+00:00", "jobs": []}))
    with (run / RECORDS).open("w"):
        pass
    made = RunFolder(run)
    for model, seconds in SECONDS.items():
        for compiler in COMPILERS:
            share = 1.0 if compiler == "inductor" else 0.1
            (job,) = planned(model)
            made.append(make_record(job, compiler, compilation_s=seconds * factor * share))
    enter(run)


def by_length(folder: Path, jobs: list[Job]) -> list[str]:
    expected = expected_beside(folder, jobs)
    assert expected is not None
    return [job.case.name for job in sorted(jobs, key=expected)]


def test_the_runs_beside_a_new_one_say_how_long_its_jobs_take(tmp_path: Path) -> None:
    earlier_run(tmp_path)
    jobs = planned("slow", "fast", "middle")
    assert by_length(tmp_path, jobs) == ["fast", "middle", "slow"]
    expected = expected_beside(tmp_path, jobs)
    assert expected is not None
    assert expected(jobs[0]) / expected(jobs[1]) == pytest.approx(SECONDS["slow"] / SECONDS["fast"])


def test_a_model_at_another_precision_counts_as_itself_and_an_unknown_one_as_the_median(
    tmp_path: Path,
) -> None:
    earlier_run(tmp_path)
    jobs = planned("slow", "fast", "unknown", dtype="bfloat16")
    assert by_length(tmp_path, jobs) == ["fast", "unknown", "slow"]


def test_the_latest_run_counts(tmp_path: Path) -> None:
    earlier_run(tmp_path, "run-1", factor=10.0, created="2026-01-01")
    earlier_run(tmp_path, "run-2", factor=1.0, created="2026-01-02")
    expected = expected_beside(tmp_path, planned("slow", "fast"))
    alone = tmp_path / "alone"
    earlier_run(alone)
    as_alone = expected_beside(alone, planned("slow", "fast"))
    assert expected is not None
    assert as_alone is not None
    (job,) = planned("slow")
    assert expected(job) == pytest.approx(as_alone(job))


def test_nothing_is_expected_without_an_index_that_knows_these_models(tmp_path: Path) -> None:
    jobs = planned("slow", "fast")
    assert expected_beside(tmp_path, jobs) is None
    earlier_run(tmp_path)
    assert expected_beside(tmp_path, planned("another", "model")) is None
    assert expected_beside(tmp_path, jobs[:1]) is None
    (tmp_path / INDEX).write_bytes(b"not a database, but long enough to be read as one" * 100)
    assert expected_beside(tmp_path, jobs) is None


def test_an_index_of_a_newer_program_is_left_alone(tmp_path: Path) -> None:
    earlier_run(tmp_path)
    with sqlite3.connect(tmp_path / INDEX) as index:
        index.execute("pragma user_version = 999")
    index.close()
    assert expected_beside(tmp_path, planned("slow", "fast")) is None


# -- whole runs -------------------------------------------------------------------------


def run_in(folder: RunFolder) -> tuple[str, list[str]]:
    """What is printed, and the models in the order of the record file."""

    def measure_one(work: Work, watch: object, stop: object, gate: object) -> object:
        for candidate in work.candidates:
            yield Record(job=work.job, candidate=candidate, status=Status.PASS)

    executor = LocalExecutor(job_command, measure=measure_one, fork=False)  # type: ignore[arg-type]
    text = io.StringIO()
    code = measure(
        folder, folder.jobs(), Console(file=text, width=200), executor, frozenset({"console", "csv"})
    )
    assert code == 0
    found = read_records(folder.records_path).records
    return text.getvalue(), [*dict.fromkeys(record.job.case.name for record in found)]


def test_a_run_begins_with_what_was_fast_and_its_tables_have_the_plans_order(tmp_path: Path) -> None:
    jobs = planned("slow", "fast", "middle")
    first, order = run_in(RunFolder.create(tmp_path / "unknown", jobs, ["--training"]))
    assert order == ["slow", "fast", "middle"]
    assert "begin first" not in first
    (tmp_path / INDEX).unlink()
    earlier_run(tmp_path)
    second, order = run_in(RunFolder.create(tmp_path / "known", jobs, ["--training"]))
    assert order == ["fast", "middle", "slow"]
    assert f"Jobs that compiled fast in earlier runs in {tmp_path} begin first." in second
    read = read_run(tmp_path / "known" / RECORDS).records
    assert [*dict.fromkeys(record.job.case.name for record in read)] == ["slow", "fast", "middle"]
    one, other = (
        {path.name: path.read_text() for path in (tmp_path / name).glob("*.csv")}
        for name in ("unknown", "known")
    )
    assert one
    assert one == other


def test_records_without_a_plan_stay_in_the_order_of_the_file(tmp_path: Path) -> None:
    earlier_run(tmp_path)
    run = tmp_path / "run-1"
    in_file = [record.job.case.name for record in read_records(run / RECORDS).records]
    assert [record.job.case.name for record in read_run(run / RECORDS).records] == in_file  # an empty plan
    for text in (None, "[]", "{", '{"jobs": [1]}', '{"jobs": [{"case": {}}]}'):
        (run / RUN).unlink(missing_ok=True)
        if text is not None:
            (run / RUN).write_text(text)
        assert [record.job.case.name for record in read_run(run / RECORDS).records] == in_file


def test_a_resumed_run_begins_with_the_shortest_that_is_left(tmp_path: Path) -> None:
    earlier_run(tmp_path)
    jobs = planned("slow", "fast", "middle")
    folder = RunFolder.create(tmp_path / "run", jobs, ["--training"])
    for candidate in COMPILERS:
        folder.append(Record(job=jobs[1], candidate=candidate, status=Status.PASS))
    assert run_in(folder)[1] == ["fast", "middle", "slow"]
    assert run_in(folder)[1] == ["fast", "middle", "slow"]  # nothing is left
