"""Several processes make one record."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from harness.protocol import AUTO
from harness.schema import Extras, Failure, Job, Protocol, Record, Status
from runner.analysis.derive import summarize
from runner.engine import Pause
from runner.engine import processes as engine
from tests.factories import known, make_job, make_record, make_samples


def with_processes(*arguments: Any) -> list[Record]:
    """The records, without the pauses."""
    return [step for step in engine.with_processes(*arguments) if isinstance(step, Record)]


def job(processes: int) -> Job:
    return replace(make_job(candidates=("a", "b")), protocol=Protocol(processes=processes))


class Processes:
    """Stands for fresh processes: the n-th gives what ``results`` has for it, or plain samples."""

    def __init__(self, **failing: int) -> None:
        self.failing = failing
        self.jobs: list[tuple[Job, tuple[str, ...]]] = []

    def __call__(self, job: Job, candidates: tuple[str, ...]) -> Iterator[Record]:
        self.jobs.append((job, candidates))
        number = len(self.jobs)
        for candidate in candidates:
            plain = make_record(job, candidate)
            if self.failing.get(candidate) == number:
                failure = Failure(kind="crash", message="SIGSEGV", phase="measure")
                yield replace(plain, status=Status.CRASH, samples=None, failure=failure)
            else:
                samples = make_samples(speedup=1 + number / 100, rounds=10 + number, seed=f"{number}")
                yield replace(plain, samples=samples)


def test_one_process_is_left_alone() -> None:
    processes = Processes()
    found = with_processes(job(1), ("a", "b"), processes, lambda: False)
    assert [record.candidate for record in found] == ["a", "b"]
    assert [record.samples.rounds_by_process for record in found if record.samples] == [(), ()]
    assert not [name for name in found[0].metrics if name.startswith("later_")]


def test_the_samples_of_all_processes_follow_each_other() -> None:
    processes = Processes()
    found = with_processes(job(3), ("a", "b"), processes, lambda: False)
    assert [record.candidate for record in found] == ["a", "b"]
    for record in found:
        assert record.samples is not None
        assert record.samples.rounds_by_process == (11, 12, 13)
        assert len(record.samples) == len(record.samples.candidate_s) == 36
    # each process has its own order of the rounds, and checks parity
    assert [measured.protocol.process for measured, _ in processes.jobs] == [0, 1, 2]
    assert [measured.protocol.accuracy for measured, _ in processes.jobs] == [True, True, True]
    estimate = known(summarize(found).comparisons[0].estimate)
    assert estimate.processes == 3
    assert estimate.speedup == pytest.approx(1.02, abs=0.01)
    assert estimate.between_sd == pytest.approx(0.01, abs=0.006)


NUMBERS = ("compilation_latency_s", "compile_cache_hits", "compile_cache_misses")


def test_the_record_says_what_later_processes_compiled_and_what_they_reused() -> None:
    numbers = iter([(9.0, 0, 3), (2.0, 3, 0), (1.0, 2, 1), (9.0, 0, 3), (1.0, 3, 0), (None, 3, 0)])

    def measure(one: Job, candidates: tuple[str, ...]) -> Iterator[Record]:
        for candidate in candidates:
            latency, hits, misses = next(numbers)
            metrics = {"compilation_latency_s": latency, "compile_cache_hits": hits}
            yield make_record(one, candidate, metrics={**metrics, "compile_cache_misses": misses})

    (found,) = with_processes(job(3), ("a",), measure, lambda: False)
    assert [found.metrics[name] for name in NUMBERS] == [9.0, 0, 3]
    later = [[c.metrics.get(name) for name in NUMBERS] for c in found.compilations]
    assert later == [[2.0, 3, 0], [1.0, 2, 1]]
    assert {c.start for c in found.compilations} == {"as found"}
    (partly,) = with_processes(job(3), ("a",), measure, lambda: False)
    assert [c.metrics["compilation_latency_s"] for c in partly.compilations] == [1.0, None]


def test_who_fails_in_a_later_process_has_failed_and_costs_the_others_nothing() -> None:
    processes = Processes(a=2)
    found = {r.candidate: r for r in with_processes(job(3), ("a", "b"), processes, lambda: False)}
    assert found["a"].status is Status.CRASH
    assert found["a"].samples is None
    assert known(found["a"].failure).message == "in process 2 of 3: SIGSEGV"
    assert known(found["b"].samples).rounds_by_process == (11, 12, 13)
    assert processes.jobs[2][1] == ("b",)


def test_parity_counts_in_every_process() -> None:
    def measure(one: Job, candidates: tuple[str, ...]) -> Iterator[Record]:
        status = Status.FAIL_ACCURACY if one.protocol.process == 1 else Status.PASS
        yield from (make_record(one, candidate, status=status) for candidate in candidates)

    (found,) = with_processes(job(3), ("a",), measure, lambda: False)
    assert found.status is Status.FAIL_ACCURACY
    assert "fail_accuracy in process 2 of 3" in found.notes
    assert len(known(found.samples).rounds_by_process) == 3


@pytest.mark.parametrize(("speedup", "least", "most"), [(1.5, 1, 1), (1.0, 3, 10)])
def test_auto_measures_as_often_as_the_verdict_needs(speedup: float, least: int, most: int) -> None:
    jobs: list[Job] = []

    def measure(one: Job, candidates: tuple[str, ...]) -> Iterator[Record]:
        jobs.append(one)
        for candidate in candidates:
            samples = make_samples(speedup=speedup, rounds=20, seed=f"{len(jobs)}", jitter=0.01)
            yield replace(make_record(one, candidate), samples=samples)

    found = with_processes(job(AUTO), ("a",), measure, lambda: False)
    assert least <= len(jobs) <= most
    assert len(known(found[0].samples).rounds_by_process) == (len(jobs) if len(jobs) > 1 else 0)
    assert [one.protocol.process for one in jobs] == list(range(len(jobs)))


def test_a_run_that_is_stopped_keeps_the_processes_it_has() -> None:
    processes = Processes()
    found = with_processes(job(5), ("a",), processes, lambda: len(processes.jobs) == 2)
    assert known(found[0].samples).rounds_by_process == (11, 12)
    assert "stopped after 2 of 5 processes" in found[0].notes


def test_a_closed_verdict_stops_there_and_the_others_pause_before_each_process() -> None:
    def measure(one: Job, candidates: tuple[str, ...]) -> Iterator[Record]:
        jobs.append(candidates)
        for candidate in candidates:
            samples = make_samples(speedup={"a": 1.5, "b": 1.0}[candidate], seed=f"{len(jobs)}")
            yield replace(make_record(one, candidate), samples=samples)

    jobs: list[tuple[str, ...]] = []
    steps = [type(step) for step in engine.with_processes(job(AUTO), ("a", "b"), measure, lambda: False)]
    assert jobs[0] == ("a", "b")
    assert len(jobs) > 1
    assert set(jobs[1:]) == {("b",)}
    assert steps == [*[Pause] * (len(jobs) - 1), Record, Record]


def test_a_calibrated_tau_is_not_doubled() -> None:
    def measured(calibrated: str) -> int:
        def measure(one: Job, candidates: tuple[str, ...]) -> Iterator[Record]:
            samples = make_samples(speedup=1.035, rounds=60, seed="x")
            record = replace(make_record(one, "a"), samples=samples, calibrated=calibrated)
            jobs.append(one)
            yield replace(record, assumed_between_sd=0.005)

        jobs: list[Job] = []
        with_processes(job(AUTO), ("a",), measure, lambda: False)
        return len(jobs)

    assert measured("2026-11-23") == 1 < measured("")


@pytest.mark.parametrize(
    ("faults", "processes", "counts"), [(0.0, 1, (1, 2)), (200.0, 1, (1, 2, 3)), (200.0, 5, (1, 2, 3, 4, 5))]
)
def test_processes_with_the_system_s_malloc_follow_where_steps_fault(
    faults: float, processes: int, counts: tuple[int, ...]
) -> None:
    jobs: list[Job] = []

    def measure(one: Job, candidates: tuple[str, ...]) -> Iterator[Record]:
        jobs.append(one)
        system = one.extras.allocator == "system"
        samples = make_samples(speedup=1.3 if system else 1.1, rounds=20, seed=str(len(jobs)))
        samples = replace(samples, baseline_minor_faults=(faults if system else 0.0,) * 20)
        for candidate in candidates:
            yield replace(make_record(one, candidate), samples=samples)

    asked = replace(job(processes), extras=Extras(allocator="both"))
    record, _ = with_processes(asked, ("a", "b"), measure, lambda: False)
    system = known(record.system_samples)
    assert system.rounds_by_process == (20,) * len(counts)
    of_system = [one.protocol for one in jobs if one.extras.allocator == "system"]
    assert [protocol.process for protocol in of_system] == [number - 1 for number in counts]
    assert {protocol.accuracy for protocol in of_system} == {False}
    assert len(known(record.samples)) == 20 * processes
    comparison, group = summarize([record]).comparisons[0], summarize([record]).groups[0]
    assert known(comparison.system).factor == pytest.approx(1.3, abs=0.01)
    assert known(comparison.allocator).within(1.3 / 1.1)
    assert known(group.allocator.value) == pytest.approx(1.3 / 1.1, abs=0.02)
    assert known(group.system.value) == pytest.approx(1.3, abs=0.01)
