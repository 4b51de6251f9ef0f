"""What a job measures next, and the one result that its processes make."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from harness.protocol import AUTO
from harness.schema import STOPPED, Extras, Failure, Job, ModelFacts, Protocol, Record, Status
from runner.analysis.derive import summarize
from runner.engine.experiments import attempted, next_attempt
from runner.store.joined import flat, joined_samples, key_of, results_of
from tests.factories import known, make_job, make_record, make_samples

Measure = Callable[[Job, str, int], Record]


def sampled(job: Job, candidate: str, number: int, **samples: Any) -> Record:
    """What process ``number``, from 1, measures; faster from process to process, but for what is given."""
    given = {"speedup": 1 + number / 100, "rounds": 10 + number, "seed": f"{number}", **samples}
    return replace(make_record(job, candidate), samples=make_samples(**given))


class Run:
    """A job whose processes ``measure`` gives the records of; ``most``: it is stopped after so many."""

    def __init__(
        self,
        processes: int,
        measure: Measure = sampled,
        only: str = "ab",
        most: int = 99,
        before: Sequence[Record] = (),
        **extras: Any,
    ) -> None:
        self.jobs: list[Job] = []
        self.asked: list[tuple[str, ...]] = []
        self.measure = measure
        self.processes = list(before)
        protocol = Protocol(processes=processes)
        job = make_job(candidates=(*only,), protocol=protocol, extras=Extras(**extras))
        with TemporaryDirectory() as folder:
            while len(self.jobs) < most and (attempt := next_attempt(job, self.processes)) is not None:
                for record in attempted(attempt, self.processes, self.process, Path(folder)):
                    self.processes.append(record)
        self.records = {record.candidate: record for record in results_of(self.processes)}

    def process(self, job: Job, candidates: tuple[str, ...], caches: Path | None) -> Iterator[Record]:
        self.jobs.append(job)
        self.asked.append(candidates)
        number = job.protocol.process + 1
        yield from (self.measure(job, candidate, number) for candidate in candidates)


def test_the_samples_of_all_processes_follow_each_other() -> None:
    run = Run(3)
    assert list(run.records) == ["a", "b"]
    for record in run.records.values():
        samples = known(record.samples)
        assert samples.rounds_by_process == (11, 12, 13)
        assert len(samples) == len(samples.candidate_s) == 36
    # each process has its own order of the rounds, and checks parity
    assert [job.protocol.process for job in run.jobs] == [0, 1, 2]
    assert [job.protocol.accuracy for job in run.jobs] == [True, True, True]
    estimate = known(summarize([*run.records.values()]).comparisons[0].estimate)
    assert estimate.processes == 3
    assert estimate.factor == pytest.approx(1.02, abs=0.01)
    assert estimate.between_sd == pytest.approx(0.01, abs=0.006)


NUMBERS = ("compilation_latency_s", "compile_cache_hits", "compile_cache_misses")
COMPILED = [(9.0, 0, 3), (2.0, 3, 0), (None, 3, 0)]


def compiled_again(job: Job, candidate: str, number: int) -> Record:
    return make_record(job, candidate, metrics=dict(zip(NUMBERS, COMPILED[number - 1], strict=True)))


def test_samples_of_records_that_have_several_processes_are_joined_too() -> None:
    alone, three = make_samples(rounds=4), known(Run(3).records["a"].samples)
    both = joined_samples([alone, three])
    assert both.rounds_by_process == (4, 11, 12, 13)
    assert both.candidate_s == (*alone.candidate_s, *three.candidate_s)


def test_the_record_says_what_later_processes_compiled_and_what_they_reused() -> None:
    record = Run(3, compiled_again, "a").records["a"]
    assert tuple(record.metrics[name] for name in NUMBERS) == COMPILED[0]
    assert [tuple(c.metrics.get(name) for name in NUMBERS) for c in record.compilations] == COMPILED[1:]
    assert {c.start for c in record.compilations} == {"as found"}


def test_who_fails_in_a_later_process_has_failed_and_costs_the_others_nothing() -> None:
    def crashes(job: Job, candidate: str, number: int) -> Record:
        crashed = make_record(job, candidate, status=Status.CRASH)
        return crashed if (candidate, number) == ("a", 2) else sampled(job, candidate, number)

    run = Run(3, crashes)
    record = run.records["a"]
    assert (record.status, record.samples) == (Status.CRASH, None)
    assert known(record.failure).message == "in process 2 of 3: made up | for crash"
    assert (known(run.records["b"].samples).rounds_by_process, run.asked[2]) == ((11, 12, 13), ("b",))


LATE = Failure(kind="RuntimeError", message="gone", phase="finish")
HALVED = ModelFacts(parameters=1, parameter_bytes=4, input_shapes=(), batch_size=4)


@pytest.mark.parametrize(
    ("changes", "status", "kind", "rounds"),
    [
        ({"status": Status.FAIL_ACCURACY}, Status.FAIL_ACCURACY, None, (20, 20, 20)),
        ({"status": Status.FAIL_TO_RUN, "failure": LATE}, Status.FAIL_TO_RUN, LATE.kind, (20, 20, 20)),
        ({"model": HALVED}, Status.OOM, "OtherBatch", None),
    ],
)
def test_the_second_process_counts_too(
    changes: dict[str, Any], status: Status, kind: str | None, rounds: tuple[int, ...] | None
) -> None:
    def measured(job: Job, candidate: str, number: int) -> Record:
        record = make_record(job, candidate)
        return replace(record, **changes) if number == 2 else record

    record = Run(3, measured, "a").records["a"]
    assert (record.status, getattr(record.failure, "kind", None)) == (status, kind)
    assert getattr(record.samples, "rounds_by_process", None) == rounds
    assert (f"{status.value} in process 2 of 3" in record.notes) is (rounds is not None)


@pytest.mark.parametrize(("speedup", "least", "most"), [(1.5, 1, 1), (1.0, 3, 10)])
def test_auto_measures_as_often_as_the_verdict_needs(speedup: float, least: int, most: int) -> None:
    run = Run(AUTO, lambda *process: sampled(*process, speedup=speedup, rounds=20), "a")
    count = len(run.jobs)
    assert least <= count <= most
    assert len(known(run.records["a"].samples).rounds_by_process) == (count if count > 1 else 0)
    assert [job.protocol.process for job in run.jobs] == list(range(count))


@pytest.mark.parametrize("processes", [3, AUTO])
def test_a_run_that_is_killed_goes_on_after_its_last_record(processes: int) -> None:
    def alike(job: Job, candidate: str, number: int) -> Record:
        return sampled(job, candidate, number, speedup=1.0, rounds=20)

    whole = Run(processes, alike)
    for kept in range(len(whole.processes)):
        resumed = Run(processes, alike, before=whole.processes[:kept])
        assert sorted(map(key_of, resumed.processes)) == sorted(map(key_of, whole.processes))
        assert resumed.records == whole.records


def test_auto_adds_no_process_where_parity_cannot_be_judged() -> None:
    def unjudged(job: Job, candidate: str, number: int) -> Record:
        return replace(sampled(job, candidate, number, speedup=1.01), status=Status.CANNOT_JUDGE)

    run = Run(AUTO, unjudged, "a")
    assert (len(run.jobs), run.records["a"].status) == (1, Status.CANNOT_JUDGE)


def test_a_run_that_is_stopped_keeps_the_processes_it_has() -> None:
    record = Run(5, only="a", most=2).records["a"]
    assert known(record.samples).rounds_by_process == (11, 12)
    assert ("stopped after 2 of 5 processes" in record.notes, record.rounds_ended) == (True, STOPPED)


def closed(job: Job, candidate: str, number: int) -> Record:
    return sampled(job, candidate, number, speedup={"a": 1.5, "b": 1.0}[candidate], rounds=20)


def test_rounds_that_were_cut_short_are_no_process_of_a_resumed_run() -> None:
    def cut(job: Job, candidate: str, number: int) -> Record:
        record = closed(job, candidate, number)
        return replace(record, rounds_ended=STOPPED) if (number, candidate) == (2, "b") else record

    stopped = Run(AUTO, cut, most=2)
    assert stopped.records["b"].rounds_ended == STOPPED
    resumed = Run(AUTO, closed, before=stopped.processes)
    assert (resumed.asked[0], resumed.jobs[0].protocol.process) == (("b",), 1)


def test_a_verdict_that_ten_processes_would_not_close_is_left_after_three() -> None:
    def scattered(job: Job, candidate: str, number: int) -> Record:
        return sampled(job, candidate, number, speedup=(0.96, 1.0, 1.08)[number % 3], rounds=20)

    assert len(Run(AUTO, scattered, "a").jobs) == 3


def test_an_older_record_of_several_processes_is_taken_apart_and_joined_again() -> None:
    whole = replace(Run(3, compiled_again, "a").records["a"], schema_version=2)
    assert [record.process for record in flat(whole)] == [0, 1, 2]
    (again,) = results_of(flat(whole))
    assert again == whole
