"""Drives one job through its workers until every candidate has its record.

A candidate that fails does not affect the others: after an exception, the session continues without it;
after a crash or a hang, the others get fresh workers.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Iterator
from contextlib import closing
from dataclasses import replace

from harness.schema import Failure, Job, Record, Status
from runner.engine import JobContext
from runner.engine.job_session import Group, JobSession, JobState, Retry
from runner.engine.worker_session import CandidateState, Launch

ISOLATED = ("isolated",)
ALONE_FOR_MEMORY = "measured alone: beside other candidates, it ran out of memory"


class JobRun:
    """Runs those candidates of one job that have no record yet. ``run()`` yields each final record."""

    def __init__(self, job: Job, launch: Launch, context: JobContext) -> None:
        self._job = job
        self._launch = launch
        self._context = context
        self._state = JobState(job, context)

    def run(self) -> Iterator[Record]:
        """Exactly one record per candidate, unless ``stop()`` became true before the first number."""
        yield from self._not_run()
        able = tuple(c for c in self._context.candidates if self._why_not_run(c) is None)
        groups: deque[Group] = deque([(able, ())] if able else [])
        if self._job.protocol.isolate:
            groups = deque(((candidate,), ISOLATED) for candidate in able)
        while groups and not self._context.stop():
            retry = yield from self._session(groups.popleft())
            groups.extendleft(reversed(retry.groups))

    def _session(self, group: Group) -> Generator[Record, None, Retry]:
        """The records of one set of workers, and how the candidates without a record are measured."""
        finished: list[Record] = []
        with closing(JobSession(self._state, self._launch, group).events()) as events:
            for event in events:
                retry = event if isinstance(event, Retry) else self._retry_after(event, group)
                if retry is not None:
                    return retry.without(finished)
                assert isinstance(event, Record)
                finished.append(event)
                yield event
        if not finished:
            return Retry(groups=())  # ``stop()`` is true
        if finished[-1].status is Status.TIMEOUT:
            self._state.patience *= self._state.pace.after_timeout
        notes = (_after(finished[-1].candidate, finished[-1].status),)
        return Retry(groups=((group[0], notes),)).without(finished)

    def _retry_after(self, record: Record, group: Group) -> Retry | None:
        """After out of memory: the candidate alone, with a worker of its own, then half the batch for all."""
        candidates, notes = group
        if self._state.asks_to_be_alone(record.status, record.failure):
            return Retry(groups=(group,))
        alone = len(candidates) == 1 or self._job.environments
        if record.status is Status.OOM and not alone:
            apart = ((record.candidate,), (*notes, ALONE_FOR_MEMORY))
            others = tuple(candidate for candidate in candidates if candidate != record.candidate)
            return Retry(groups=(apart, (others, (*notes, _after(record.candidate, Status.OOM)))))
        return Retry(groups=(group,)) if self._state.halves(record.status) else None

    def _why_not_run(self, candidate: str) -> str | None:
        return self._job.case.skip or self._job.unavailable.get(candidate)

    def _not_run(self) -> Iterator[Record]:
        unless = " --no-skip" if self._job.case.skip else ""
        for candidate in self._context.candidates:
            why = self._why_not_run(candidate)
            if why is not None:
                failure = Failure(kind="skipped", message=why, phase="plan")
                record = self._state.record(candidate, CandidateState(status=Status.SKIP))
                yield replace(record, failure=failure, reproduce=f"{record.reproduce}{unless}")


def _after(candidate: str, status: Status) -> str:
    return f"measured in a fresh worker after {candidate} ended as {status.value}"
