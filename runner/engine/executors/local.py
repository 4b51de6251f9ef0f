"""Jobs on this machine: one worker per device at a time; devices of one type work in parallel."""

from __future__ import annotations

import os
import queue
import threading
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field

from harness.schema import Job, Record
from harness.worker.status_page import Activity
from runner.engine.executors import (
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
from runner.engine.executors.time_budget import TimeBudget, share_of
from runner.engine.host_process import HostPool, forking_works
from runner.engine.job_run import Reproduce
from runner.engine.launch import measure_job

CHECK_S = 0.5  # a lane that waits for its record to be written checks this often for ``abandoned``


class Abandoned(Exception):
    """The lane's worker must end at once."""


class Watch:
    """Turns the progress of one job into events. ``tell`` raises ``Abandoned`` to end the job."""

    def __init__(self, job: Job, tell: Callable[[Event], object]) -> None:
        self._job = job
        self._tell = tell

    def activity(self, activity: Activity) -> None:
        self._tell(Doing(job=self._job, activity=activity))

    def rounds(self, done: int, pairs: Pairs) -> None:
        self._tell(Timed(job=self._job, done=done, pairs=pairs))


JobRecords = Callable[[Work, Watch, Stop], Iterator[Record]]
"""Measures one job and yields each record when it is final, as ``runner.engine.launch.measure_job`` does."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Letter:
    """An event in the queue. ``handled`` is set when the caller has finished with it."""

    event: Event
    handled: threading.Event = field(default_factory=threading.Event)


@dataclass(frozen=True, slots=True, kw_only=True)
class _LaneEnded:
    error: BaseException | None


class Lanes:
    """Runs several lists of work in parallel, each in order in its own thread.

    After a record, a lane waits until the caller has taken and written it. An error in one lane stops
    the others after their current rounds, and is then raised. Any thread may set ``abandoned``, which
    ends all workers within two seconds.
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
                # closing: the worker always ends before its lane
                with closing(_generator(self._records(work, watch, self._stopped))) as records:
                    for record in records:
                        self._deliver(record)
                self._tell(Ended(job=work.job))
        except Abandoned:
            pass
        except BaseException as caught:  # raised again in the caller's thread
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
    """Runs devices of one type in parallel, with one worker each, and one type after another.

    A CPU worker would disturb the times of a GPU worker, so these never run together.
    ``measure`` replaces the workers in tests.
    """

    def __init__(
        self,
        reproduce: Reproduce,
        *,
        measure: JobRecords | None = None,
        fork: bool = True,
        time_budget_s: float | None = None,
    ) -> None:
        self._reproduce = reproduce
        self._measure = measure
        self._fork = fork
        self._time_budget_s = time_budget_s

    def run(self, work: Sequence[Work], cases: Cases, stop: Stop) -> Events:
        budget = None
        if self._time_budget_s is not None:
            side_by_side = max((len(_lanes(one)) for one in by_kind(work).values()), default=1)
            budget = TimeBudget(self._time_budget_s, len(work), side_by_side)
        lanes = max((len(_lanes(one)) for one in by_kind(work).values()), default=1)
        with HostPool(max(2, lanes)) as hosts:
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
        shares: dict[str, tuple[int, ...]] = {}

        def over() -> bool:
            return stop() or (budget is not None and budget.exhausted())

        def measure(one: Work, watch: Watch, stopped: Stop) -> Iterator[Record]:
            log = cases.open_case(one.job)
            with share_of(budget) as share:
                yield from measure_job(
                    one.job,
                    one.candidates,
                    watch,
                    stopped,
                    log=log,
                    log_name=cases.relative(log),
                    reproduce=self._reproduce,
                    pool=pool,
                    allowance=share,
                    cpus=shares.get(one.job.device, ()),
                )

        for together in by_kind(work).values():
            if over():
                return
            shares = cpu_shares(
                sorted({one.job.device for one in together}),
                sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else (),
                max((one.job.protocol.threads or 1 for one in together), default=1),
            )
            yield from Lanes(self._measure or measure, over).run(_lanes(together))


def cpu_shares(devices: Sequence[str], cpus: Sequence[int], threads: int) -> dict[str, tuple[int, ...]]:
    """Device -> its own CPUs, so that no lane compiles on the CPUs on which another lane is timed.

    {} for one device, and if a share would have fewer CPUs than a worker has threads.
    """
    size = len(cpus) // max(1, len(devices))
    if len(devices) < 2 or size < threads:
        return {}
    return {device: tuple(cpus[size * i : size * (i + 1)]) for i, device in enumerate(devices)}


def _lanes(work: Sequence[Work]) -> list[list[Work]]:
    lanes: dict[str, list[Work]] = {}
    for one in work:
        lanes.setdefault(one.job.device, []).append(one)
    return list(lanes.values())


def _generator(records: Iterator[Record]) -> Generator[Record, None, None]:
    yield from records
