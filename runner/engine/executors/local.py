"""Jobs on this machine. One job of a device is timed at a time; devices of one type work in parallel."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path

from harness.devices import type_of
from harness.hardware.cpus import cores_of, cpus_near, usable_cpus
from harness.schema import Record
from runner.engine import JobContext, Place, Reproduce, launch
from runner.engine.executors import (
    Cases,
    Doing,
    Event,
    Events,
    JobEnded,
    Previewed,
    Started,
    Stop,
    Timed,
    Work,
    grouped,
)
from runner.engine.executors.ahead import FreeMemory, jobs_ahead
from runner.engine.gate import DeviceGate, Seat, sessions
from runner.engine.launch import Workers
from runner.engine.worker_start import HostPool, forking_works

CHECK_S = 0.5  # a lane that waits for its record to be written checks this often for ``abandoned``


class Abandoned(BaseException):
    """The lane's worker must end at once. No failure of its job: ``except Exception`` lets it pass."""


Letter = tuple[Event, threading.Event]
"""What happens to a job, and what is set when the caller has finished with it."""

Tell = Callable[[Event], object]
"""Takes what happens to a job. Raises ``Abandoned`` to end the job."""

JobRecords = Callable[[Work, Tell, Stop, Seat], Iterator[Record]]
"""Measures one attempt and yields each record when it is final, as ``launch.measure`` does."""


@dataclass(slots=True, eq=False)
class Lanes:
    """Runs several lists of work in parallel, the list of each device in its order.

    A list has one thread. If up to ``ahead`` > 1 jobs may prepare side by side, it has twice as many: so
    many jobs are open at once, if ``room`` says that the memory suffices (see ``runner.engine.gate``).

    After a record, a lane waits until the caller has taken and written it. An error in one lane stops
    the others after their current rounds, and is then raised. Any thread may set ``abandoned``, which
    ends all workers within two seconds.
    """

    records: JobRecords
    stop: Stop
    abandoned: threading.Event = field(default_factory=threading.Event)
    _: KW_ONLY
    ahead: int = 1
    room: Callable[[int], bool] = lambda _: True
    _mail: queue.SimpleQueue[Letter | BaseException | None] = field(
        init=False, default_factory=queue.SimpleQueue
    )
    _failed: threading.Event = field(init=False, default_factory=threading.Event)

    def run(self, lanes: Sequence[Sequence[Work]]) -> Events:
        threads = [thread for lane in lanes for thread in self._threads(lane)]
        ends: list[BaseException | None] = []  # of each lane, the error that ended it
        try:
            for thread in threads:
                thread.start()
            while len(ends) < len(threads):
                letter = self._mail.get()
                if not isinstance(letter, tuple):
                    ends.append(letter)
                    continue
                event, handled = letter
                yield event
                handled.set()
        finally:
            self.abandoned.set()
            for thread in threads:
                if thread.ident is not None:  # it has started
                    thread.join()
        for error in filter(None, ends):
            raise error

    def _stopped(self) -> bool:
        return self.stop() or self._failed.is_set()

    def _threads(self, work: Sequence[Work]) -> list[threading.Thread]:
        gate, jobs = DeviceGate(self.ahead, room=self.room, check=self._check), enumerate(work)
        seats = [gate.seat() for _ in range(min(sessions(self.ahead), len(work)))]
        return [threading.Thread(target=self._lane, args=(jobs, seat)) for seat in seats]

    def _lane(self, jobs: Iterator[tuple[int, Work]], seat: Seat) -> None:
        error: BaseException | None = None
        try:
            while (work := self._next(jobs, seat)) is not None:
                with closing(_generator(self.records(work, self._tell, self._stopped, seat))) as records:
                    for record in records:
                        self._deliver(record)
                self._tell(JobEnded(job=work.job))
        except Abandoned:
            pass
        except BaseException as caught:  # raised again in the caller's thread
            error = caught
            self._failed.set()
        seat.leave()
        self._mail.put(error)

    def _next(self, jobs: Iterator[tuple[int, Work]], seat: Seat) -> Work | None:
        with seat.gate.changed:  # so that jobs begin in order
            item = None if self._stopped() else next(jobs, None)
            if item is None:
                return None
            number, work = item
            self._tell(Started(job=work.job))
            seat.begin(number)
            return work

    def _check(self) -> None:
        if self.abandoned.is_set():
            raise Abandoned

    def _tell(self, event: Event) -> threading.Event:
        self._check()
        handled = threading.Event()
        self._mail.put((event, handled))
        return handled

    def _deliver(self, record: Record) -> None:
        handled = self._tell(record)
        while not handled.wait(CHECK_S):
            self._check()


@dataclass(frozen=True, slots=True)
class LocalExecutor:
    """Runs devices of one type in parallel, with one worker each, and one type after another.

    A CPU worker would disturb the times of a GPU worker, so these never run together.
    ``ahead``: how many jobs of a device prepare side by side; None: as many as suit the machine and the jobs.
    ``measure`` replaces the workers in tests. ``hosts``: kept from one call to the next; None: of each call.
    """

    reproduce: Reproduce
    _: KW_ONLY
    measure: JobRecords | None = None
    fork: bool = True
    ahead: int | None = 1
    hosts: HostPool | None = None

    def run(self, work: Sequence[Work], cases: Cases, stop: Stop) -> Events:
        ahead = jobs_ahead([item.job for item in work]) if self.ahead is None else self.ahead
        side_by_side = max((len(grouped(together, str)) for together in grouped(work, type_of)), default=1)
        own = HostPool(max(2, side_by_side * sessions(ahead)))
        pool = (self.hosts or own) if self.fork and forking_works() else None
        shares: dict[str, tuple[int, ...]] = {}

        def measure(item: Work, tell: Tell, stopped: Stop, gate: Seat) -> Iterator[Record]:
            log = cases.open_case(item.job)
            context = JobContext(
                candidates=item.attempt.candidates,
                place=Place(logs={"": cases.relative(log)}),
                reproduce=self.reproduce,
                preview=(lambda pairs: tell(Previewed(job=item.job, pairs=pairs))) if item.preview else None,
                doing=lambda activity: tell(Doing(job=item.job, activity=activity)),
                timed=lambda done, pairs: tell(Timed(job=item.job, done=done, pairs=pairs)),
                stop=stopped,
                gate=gate,
            )
            workers = Workers(pool=pool, cpus=shares.get(item.job.device, ()))
            yield from launch.measure(item.attempt, item.records, context, log, workers)

        with own:
            for together in grouped(work, type_of):
                if stop():
                    return
                shares = cpu_shares(
                    sorted({item.job.device for item in together}),
                    usable_cpus(),
                    max(item.job.protocol.threads or 1 for item in together),
                )
                memory = FreeMemory(together[0].job.protocol.max_memory_bytes)
                lanes = Lanes(self.measure or measure, stop, ahead=ahead, room=memory.suffices)
                yield from lanes.run(grouped(together, str))


def cpu_shares(
    devices: Sequence[str], cpus: Sequence[int], threads: int, root: Path = Path("/")
) -> dict[str, tuple[int, ...]]:
    """Device -> its own cores, so that no lane compiles on the cores on which another lane is timed.

    Cores next to the device come first. {} for one device, and if a share would have fewer CPUs than a worker
    has threads.
    """
    left, shares = cores_of(cpus, root), dict[str, tuple[int, ...]]()
    size = len(left) // max(1, len(devices))
    near = {device: cpus_near(device, root) for device in devices}
    for device in devices:
        taken = sorted(left, key=lambda core: _distance(core, device, near))[:size]
        left = [core for core in left if core not in taken]
        shares[device] = tuple(sorted(cpu for core in taken for cpu in core))
    enough = all(len(share) >= max(1, threads) for share in shares.values())
    return shares if len(devices) > 1 and enough else {}


def _distance(core: tuple[int, ...], device: str, near: Mapping[str, frozenset[int]]) -> int:
    """0: next to the device; 1: next to none; 2: next to another one."""
    others = (cpus for other, cpus in near.items() if other != device and cpus != near[device])
    return 0 if core[0] in near[device] else 2 if any(core[0] in cpus for cpus in others) else 1


def _generator(records: Iterator[Record]) -> Generator[Record, None, None]:
    yield from records
