"""Jobs on this machine: one worker for each device at a time, the devices of one kind side by side."""

from __future__ import annotations

import os
import queue
import threading
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

from harness.schema import Job, Record
from harness.status_page import Activity
from runner.allocators import library_of
from runner.execute import JobRun
from runner.executors import (
    Cases,
    Doing,
    Ended,
    Event,
    Events,
    Pairs,
    Started,
    Stop,
    Timed,
    Work,
    by_kind,
)
from runner.host_process import HostPool, forking_works
from runner.replication import with_processes
from runner.starts import Caches, with_starts
from runner.time_budget import TimeBudget, share_of
from runner.worker_process import WorkerProcess, worker_environment
from runner.worker_start import ForkedStart, fresh_start

CHECK_S = 0.5  # how often a lane that waits for its record to be written looks whether it is still wanted


class Abandoned(Exception):
    """Nobody wants this lane's work any more: its worker is to end at once."""


class Watch:
    """Passes on what one job's worker is at. Raises ``Abandoned`` where that is the way to end it."""

    def __init__(self, job: Job, tell: Callable[[Event], object]) -> None:
        self._job = job
        self._tell = tell

    def activity(self, activity: Activity) -> None:
        self._tell(Doing(job=self._job, activity=activity))

    def rounds(self, done: int, pairs: Pairs) -> None:
        self._tell(Timed(job=self._job, done=done, pairs=pairs))


JobRecords = Callable[[Work, Watch, Stop], Iterator[Record]]
"""Measures one job: records as they become final. The real one is ``worker_records``."""


def worker_records(
    work: Work,
    watch: Watch,
    stop: Stop,
    *,
    log: Path,
    log_name: str,
    base: Mapping[str, str] = os.environ,
    pool: HostPool | None = None,
    budget: TimeBudget | None = None,
) -> Iterator[Record]:
    """Measures in worker processes of this machine, whose output goes to ``log``.

    ``log_name`` is what records call the log; ``base`` is the environment that the worker's is made from.
    With a ``pool``, workers are forked from its hosts; with a ``budget``, it says how long they may time.
    """

    def run(job: Job, caches: Caches) -> Iterator[Record]:
        def launch(part: Job) -> WorkerProcess:
            environment = worker_environment(
                part.protocol.threads,
                base,
                online=part.case.pretrained,
                preload=library_of(part.extras.allocator),
                caches=caches(),
            )
            limit = part.protocol.max_memory_bytes
            start = fresh_start() if pool is None else ForkedStart(pool=pool, suite=part.case.suite)
            return WorkerProcess(start, environment, log, watch.activity, limit)

        def measure(part: Job, candidates: tuple[str, ...]) -> Iterator[Record]:
            return JobRun(
                part, launch, watch, candidates=candidates, log=log_name, stop=stop, allowance=share
            ).run()

        return with_processes(job, work.candidates, measure, stop)

    if work.job.environments:
        from runner.environments.records import environment_records

        with share_of(budget) as share:
            yield from environment_records(
                work.job,
                work.candidates,
                watch,
                stop,
                folder=log.parent,
                folder_name=str(Path(log_name).parent),
                allowance=share,
                base=base,
            )
        return
    # processes forked from one host have its memory layout: repeated ones are to differ in that too
    pool = None if work.job.protocol.processes > 1 else pool
    with share_of(budget) as share:
        yield from with_starts(work.job, run, log.parent)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Letter:
    """An event on its way, and the flag that says the caller is done with it."""

    event: Event
    handled: threading.Event = field(default_factory=threading.Event)


@dataclass(frozen=True, slots=True, kw_only=True)
class _LaneEnded:
    error: BaseException | None


class Lanes:
    """Several lists of work at once, each in a thread of its own, in order.

    A lane goes on after a record only when the caller has taken it, and so has written it down.
    An error in one lane stops the others after their current rounds; then it is raised.
    ``abandoned``, which any thread may set, ends all workers at once: within a second or two.
    """

    def __init__(self, records: JobRecords, stop: Stop, abandoned: threading.Event | None = None) -> None:
        self._records = records
        self._stop = stop
        self._mail: queue.SimpleQueue[_Letter | _LaneEnded] = queue.SimpleQueue()
        self._failed = threading.Event()
        self._abandoned = abandoned or threading.Event()

    def run(self, lanes: Sequence[Sequence[Work]]) -> Events:
        threads = [threading.Thread(target=self._lane, args=(lane,)) for lane in lanes]
        errors = []
        running = len(threads)
        for thread in threads:
            thread.start()
        try:
            while running:
                letter = self._mail.get()
                if isinstance(letter, _LaneEnded):
                    running -= 1
                    errors += [letter.error] if letter.error is not None else []
                    continue
                yield letter.event
                letter.handled.set()
        finally:
            self._abandoned.set()
            for thread in threads:
                thread.join()
        if errors:
            raise errors[0]

    def _stopped(self) -> bool:
        return self._stop() or self._failed.is_set()

    def _lane(self, lane: Sequence[Work]) -> None:
        error: BaseException | None = None
        try:
            for work in lane:
                if self._stopped():
                    break
                self._tell(Started(job=work.job))
                watch = Watch(work.job, self._tell)
                # closing: the worker ends before the lane does, whatever happens
                with closing(_generator(self._records(work, watch, self._stopped))) as records:
                    for record in records:
                        self._deliver(record)
                self._tell(Ended(job=work.job))
        except Abandoned:
            pass
        except BaseException as caught:  # it is raised again, in the caller's thread
            error = caught
            self._failed.set()
        self._mail.put(_LaneEnded(error=error))

    def _tell(self, event: Event) -> _Letter:
        if self._abandoned.is_set():
            raise Abandoned
        letter = _Letter(event=event)
        self._mail.put(letter)
        return letter

    def _deliver(self, record: Record) -> None:
        letter = self._tell(record)
        while not letter.handled.wait(CHECK_S):
            if self._abandoned.is_set():
                raise Abandoned


class LocalExecutor:
    """Devices of one kind work side by side, one worker each; kinds follow each other.

    A CPU worker beside a GPU worker would disturb its timings, so these never run together.
    ``measure`` stands for real workers in tests.
    """

    def __init__(
        self, measure: JobRecords | None = None, *, fork: bool = True, time_budget_s: float | None = None
    ) -> None:
        self._measure = measure
        self._fork = fork
        self._time_budget_s = time_budget_s

    def run(self, work: Sequence[Work], cases: Cases, stop: Stop) -> Events:
        budget = None
        if self._time_budget_s is not None:
            side_by_side = max((len(_lanes(one)) for one in by_kind(work).values()), default=1)
            budget = TimeBudget(self._time_budget_s, len(work), side_by_side)
        with HostPool() as hosts:
            pool = hosts if self._fork and forking_works() else None
            yield from self._run(work, cases, stop, pool, budget)

    def _run(
        self,
        work: Sequence[Work],
        cases: Cases,
        stop: Stop,
        pool: HostPool | None,
        budget: TimeBudget | None,
    ) -> Events:
        def over() -> bool:
            return stop() or (budget is not None and budget.exhausted())

        def measure(one: Work, watch: Watch, stopped: Stop) -> Iterator[Record]:
            log = cases.open_case(one.job)
            name = cases.relative(log)
            return worker_records(one, watch, stopped, log=log, log_name=name, pool=pool, budget=budget)

        for together in by_kind(work).values():
            if over():
                return
            yield from Lanes(self._measure or measure, over).run(_lanes(together))


def _lanes(work: Sequence[Work]) -> list[list[Work]]:
    """What each device has to do."""
    lanes: dict[str, list[Work]] = {}
    for one in work:
        lanes.setdefault(one.job.device, []).append(one)
    return list(lanes.values())


def _generator(records: Iterator[Record]) -> Generator[Record, None, None]:
    yield from records
