"""Splitting a plan: every job in exactly one part, the same everywhere, and in parts of about equal time."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.schema import Job, Protocol, Record
from runner.cli.main import main
from runner.errors import UsageError
from runner.plan.partition import (
    COMPILE_S,
    START_S,
    VARIANT_S,
    Partition,
    balanced,
    estimated_s,
    expected_by,
    our_part,
    part_of,
    timings,
    wall_s,
)
from runner.store.record_file import append_record, read_records
from tests.cli.command import TOYS
from tests.command_line import parsed
from tests.factories import make_job, make_record

COMMITTED = Path(__file__).parents[2] / "results" / "tiny_gpt-training-bfloat16-cpu" / "records.jsonl"
START = "2026-01-01T00:00:00.000+00:00"

lengths = st.lists(st.floats(0, 1000, allow_nan=False), min_size=1, max_size=30)


def jobs_of(times: Sequence[float]) -> tuple[Job, ...]:
    return tuple(make_job(f"m{place}") for place in range(len(times)))


def by_name(times: Sequence[float]) -> dict[str, float]:
    return {f"m{place}": seconds for place, seconds in enumerate(times)}


def split(times: Sequence[float], parts: int, order: Sequence[Job] | None = None) -> list[tuple[str, ...]]:
    known = by_name(times)
    found = balanced(order or jobs_of(times), parts, lambda job: known[job.case.name])
    return [tuple(job.case.name for job in part) for part in found]


@given(lengths, st.integers(1, 12))
def test_parts_are_disjoint_and_complete_and_keep_the_plans_order(times: list[float], parts: int) -> None:
    found = split(times, parts)
    assert len(found) == parts
    places = [[int(name[1:]) for name in part] for part in found]
    assert all(part == sorted(part) for part in places)
    assert sorted(place for part in places for place in part) == list(range(len(times)))


@given(st.lists(st.floats(0, 1000), min_size=1, max_size=7), st.integers(1, 3))
def test_the_fullest_part_is_within_the_bound_of_the_best_possible(times: list[float], parts: int) -> None:
    known = by_name(times)
    fullest = max(sum(known[name] for name in part) for part in split(times, parts))
    best = min(
        max(sum(t for t, where in zip(times, places, strict=True) if where == part) for part in range(parts))
        for places in itertools.product(range(parts), repeat=len(times))
    )
    assert fullest <= (4 / 3 - 1 / (3 * parts)) * best * (1 + 1e-9)


@given(lengths, st.integers(1, 5), st.randoms(use_true_random=False))
def test_the_order_of_the_plan_changes_nothing(times: list[float], parts: int, rng: object) -> None:
    shuffled = list(jobs_of(times))
    rng.shuffle(shuffled)  # type: ignore[attr-defined]
    assert [set(part) for part in split(times, parts)] == [
        set(part) for part in split(times, parts, shuffled)
    ]


@given(st.integers(1, 20), st.integers(1, 5))
def test_the_folder_of_a_suite_changes_nothing(count: int, parts: int) -> None:
    here, there = (
        [make_job(f"m{place}", suite=f"{home}/mine.py") for place in range(count)]
        for home in ("/home/a", "/somewhere/quite/else")
    )
    names = [[[job.case.name for job in part] for part in balanced(plan, parts)] for plan in (here, there)]
    assert names[0] == names[1]


def test_equal_jobs_are_dealt_out() -> None:
    assert split([1.0] * 7, 3) == [("m0", "m3", "m6"), ("m1", "m4"), ("m2", "m5")]
    assert split([0.0] * 4, 2) == [("m0", "m2"), ("m1", "m3")]


# -- expected times -----------------------------------------------------------


def test_an_estimate_knows_candidates_isolation_and_skips() -> None:
    job = make_job(candidates=("aot_eager",))
    inductor = replace(job, candidates=("inductor",))
    assert estimated_s(inductor) > estimated_s(job)
    assert estimated_s(replace(job, candidates=("aot_eager", "inductor"))) > estimated_s(inductor)
    assert estimated_s(replace(job, protocol=Protocol(performance=False))) < estimated_s(job)
    both = make_job(candidates=("aot_eager", "torchscript"))
    assert estimated_s(replace(both, protocol=Protocol(isolate=True))) > estimated_s(both)
    assert estimated_s(make_job(skip="too large")) == 0


def test_the_constants_are_those_of_the_committed_run() -> None:
    """Within a factor of 2, so that another run may take its place."""
    jobs: dict[str, list[Record]] = {}
    for record in read_records(COMMITTED).records:
        jobs.setdefault(record.job.key, []).append(record)
    rest, variants = [], []
    compiling: dict[str, list[float]] = {}
    for group in jobs.values():
        samples = [record.samples for record in group if record.samples is not None]
        timed = sum(samples[0].baseline_s) + sum(sum(s.candidate_s) for s in samples)
        timed *= samples[0].iterations_per_sample
        latencies = {r.candidate: float(r.metrics["compilation_latency_s"] or 0) for r in group}
        for name, latency in latencies.items():
            compiling.setdefault(name, []).append(latency)
        variants.append(timed / (len(samples) + 1))
        rest.append(wall_s(group) - timed - sum(latencies.values()))
    assert START_S / 2 < median(rest) < START_S * 2
    assert VARIANT_S / 2 < median(variants) < VARIANT_S * 2
    for name in ("aot_eager", "torchscript"):
        assert COMPILE_S[name] / 2 < median(compiling[name]) < COMPILE_S[name] * 2
    assert median(compiling["inductor"]) < COMPILE_S["inductor"]  # the caches were warm


def ended_after(record: Record, seconds: int, started: str = START) -> Record:
    minute, second = divmod(seconds, 60)
    return replace(record, started=started, ended=f"2026-01-01T00:{minute:02}:{second:02}.000+00:00")


def test_an_earlier_run_says_how_long_a_job_takes() -> None:
    slow, fast = (make_job(name, candidates=("eager", "inductor")) for name in ("slow", "fast"))
    found = timings(
        [
            ended_after(make_record(slow, "eager"), 300),
            ended_after(make_record(slow, "inductor"), 600),
            ended_after(make_record(fast, "eager"), 10),
            ended_after(make_record(fast, "inductor"), 60),
        ]
    )
    assert found is not None
    assert found.expected_s(slow) == pytest.approx(600)
    assert found.expected_s(fast) == pytest.approx(60)
    assert found.expected_s(replace(slow, dtype="amp")) == pytest.approx(600)  # its model's
    assert 60 < found.expected_s(make_job("new", candidates=slow.candidates)) < 600  # the run's median
    alone = replace(slow, candidates=("eager",))
    assert found.expected_s(alone) == pytest.approx(600 * estimated_s(alone) / estimated_s(slow))
    assert found.expected_s(replace(slow, case=replace(slow.case, skip="why"))) == 0
    moved = replace(slow, case=replace(slow.case, suite="/elsewhere/toys"))
    assert found.expected_s(moved) == pytest.approx(600)


def test_the_times_of_a_resumed_job_add_up() -> None:
    job = make_job(candidates=("eager", "inductor"))
    first = ended_after(make_record(job, "eager"), 60)
    later = ended_after(make_record(job, "inductor"), 180, "2026-01-01T00:02:30.000+00:00")
    assert wall_s([first, later]) == 60 + 30


def test_times_that_cannot_be_read_say_nothing() -> None:
    record = make_record(make_job())
    unread = [
        replace(record, started="", ended=""),
        replace(record, started="2026-01-01", ended="2026-01-01T00:00:00+00:00"),
        replace(record, started=START, ended="2025-01-01T00:00:00+00:00"),
    ]
    assert wall_s(unread) == 0
    assert timings(unread) is None


# -- flags --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--total-partitions=3"], "--total-partitions needs --partition-id: say which part to run, 0 to 2"),
        (["--partition-id=0"], "--partition-id needs --total-partitions"),
        (
            ["--total-partitions=3", "--partition-id=3"],
            "--partition-id: there is no part 3 of 3; choose from 0 to 2",
        ),
        (["--total-partitions=0", "--partition-id=0"], "--total-partitions: 0 is too small"),
        (["--total-partitions=2", "--partition-id=-1"], "--partition-id: -1 is negative"),
        (["--timings=somewhere"], "--timings is for --total-partitions"),
    ],
)
def test_flags_that_do_not_fit(words: list[str], says: str) -> None:
    with pytest.raises(UsageError, match=says):
        parsed(["--training", *words])


def test_an_earlier_run_that_says_nothing(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"--timings: there is no folder"):
        part_of([make_job()], Partition(index=0, total=1, timings=tmp_path / "none"))
    append_record(tmp_path / "records.jsonl", replace(make_record(make_job()), started=""))
    with pytest.raises(UsageError, match=r"--timings: no record in .* says how long a job took"):
        expected_by(tmp_path)


def test_parts_by_an_earlier_run(tmp_path: Path) -> None:
    jobs = [make_job(name, candidates=("eager",)) for name in "abcd"]
    for job, seconds in zip(jobs, (300, 100, 100, 100), strict=True):
        append_record(tmp_path / "records.jsonl", ended_after(make_record(job, "eager"), seconds))
    parts = [part_of(jobs, Partition(index=i, total=2, timings=tmp_path)) for i in range(2)]
    assert [[job.case.name for job in part] for part in parts] == [["a"], ["b", "c", "d"]]


def listed(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[list[str], str]:
    assert main([f"--suites={TOYS}", *words]) == 0
    captured = capsys.readouterr()
    return captured.out.splitlines(), captured.err


@pytest.mark.parametrize("action", ["--list", "--print-run-commands"])
def test_what_is_listed_is_the_part(capsys: pytest.CaptureFixture[str], action: str) -> None:
    whole, _ = listed(capsys, "--training", action)
    parts = [
        listed(capsys, "--training", action, "--total-partitions=2", f"--partition-id={i}")[0]
        for i in range(2)
    ]
    assert [len(part) for part in parts] == [2, 1]
    assert sorted(parts[0] + parts[1]) == sorted(whole)


@pytest.mark.parametrize("action", [["--list"], ["--print-run-commands"], []])
def test_an_empty_part_is_a_sentence_and_no_error(
    capsys: pytest.CaptureFixture[str], action: list[str], tmp_path: Path
) -> None:
    part = ["--total-partitions=9", "--partition-id=5", f"--output-dir={tmp_path / 'run'}"]
    out, err = listed(capsys, "--training", *action, *part)
    assert out == []
    assert err == "Nothing to do in part 5 of 9: the plan has 3 jobs in all.\n"
    assert not list(tmp_path.iterdir())
    assert our_part(Partition(index=1, total=2), [make_job()]) == ()
    assert capsys.readouterr().err.endswith("the plan has 1 job in all.\n")


def test_the_same_flags_give_the_same_part_twice(capsys: pytest.CaptureFixture[str]) -> None:
    words = ("--training", "--print-run-commands", "--total-partitions=2", "--partition-id=0")
    assert listed(capsys, *words) == listed(capsys, *words)
