"""Carries out what a job measures, with a function in place of the workers."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from harness.schema import Job, Record
from runner.engine.experiments import Policy, attempted, attempts, next_attempt
from runner.store.joined import results_of

Measure = Callable[[Job, Path | None], Iterator[Record]]


def processes_of(
    job: Job,
    measure: Measure,
    folder: Path,
    stop: Callable[[], bool] = lambda: False,
    before: Sequence[Record] = (),
    policy: Policy = next_attempt,
) -> list[Record]:
    """The records of all processes. ``measure``: of the job, and the folder of its compile caches."""
    records = list(before)

    def of_candidates(job: Job, candidates: tuple[str, ...], caches: Path | None) -> Iterator[Record]:
        if not stop():
            yield from (record for record in measure(job, caches) if record.candidate in candidates)

    for attempt in attempts(policy, job, records):
        records += attempted(attempt, list(records), of_candidates, folder)
    return records


def results_by_name(records: Sequence[Record]) -> dict[str, Record]:
    return {record.candidate: record for record in results_of(records)}
