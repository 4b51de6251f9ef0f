"""``--prepare-ahead``: which jobs of a device prepare side by side, and when each job is timed alone.

Up to ``ahead`` jobs build, compile and check parity at the same time. A job that is prepared waits with its
workers. When no job prepares, and no other job can begin, the waiting jobs are timed one after another, in
the order in which they began. Then the next jobs prepare. Jobs never prepare while a job is timed.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import KW_ONLY, dataclass, field
from enum import Enum, auto

CHECK_S = 0.5  # a waiting job looks this often at the free memory, and whether the run was abandoned


def sessions(ahead: int) -> int:
    """How many jobs of a device may be open at once: those that prepare, and as many that wait."""
    return 2 * ahead if ahead > 1 else 1


class State(Enum):
    """What the job of a seat does."""

    COMES = auto()  # it has not asked to prepare yet
    WANTS_TO_PREPARE = auto()
    PREPARES = auto()
    OPEN = auto()  # it holds memory, between two other states
    WANTS_TO_BE_TIMED = auto()
    TIMED = auto()
    MUST_BE_ALONE = auto()  # it ran out of memory beside others; its workers still end
    WANTS_TO_BE_ALONE = auto()
    ALONE = auto()  # it prepares and is timed while no other job is open


WAITING = {State.WANTS_TO_PREPARE, State.WANTS_TO_BE_TIMED, State.WANTS_TO_BE_ALONE}
CLOSED = {State.COMES, State.WANTS_TO_PREPARE, State.WANTS_TO_BE_ALONE}
SINGLE = {State.MUST_BE_ALONE, State.WANTS_TO_BE_ALONE, State.ALONE}


@dataclass(slots=True, eq=False)
class DeviceGate:
    """The gate of one device. Each lane of jobs has a ``Seat``, and all seats are made before jobs start.

    ``room(open)``: whether the memory suffices for another job beside ``open`` others. ``check()`` is called
    while a job waits, and raises an exception to end the job.
    """

    ahead: int = 1
    _: KW_ONLY
    room: Callable[[int], bool] = lambda _: True
    check: Callable[[], None] = lambda: None
    clock: Callable[[], float] = time.monotonic
    _seats: list[Seat] = field(init=False, default_factory=list)
    _timing: bool = field(init=False, default=False)  # prepared jobs are timed now; no job may prepare
    # a thread that holds it may take it again
    _changed: threading.Condition = field(init=False, default_factory=threading.Condition)

    def seat(self, number: int = 0) -> Seat:
        """A place for one more job at a time. ``number``: of its first job."""
        seat = Seat(self, number)
        self._seats.append(seat)
        return seat

    # -- for seats -----------------------------------------------------------------

    def enter(self, seat: Seat, state: State) -> None:
        with self._changed:
            seat.state = state
            if state is State.PREPARES:
                together = [other for other in self._seats if other.state is State.PREPARES]
                for other in together:
                    other.beside = max(other.beside, len(together) - 1)
            self._settle()
            self._changed.notify_all()

    def leave(self, seat: Seat) -> None:
        with self._changed:
            self._seats.remove(seat)
            self._settle()
            self._changed.notify_all()

    def wait(self, seat: Seat, wanted: State, then: State) -> float:
        """Waits for the state ``then``; returns the seconds."""
        began = self.clock()
        with self._changed:
            self.enter(seat, wanted)
            while not self._may_go_on(seat):
                self._changed.wait(CHECK_S)
                self.check()
                self._settle()  # the free memory changes without notice
            self.enter(seat, then)
        return self.clock() - began

    def open_beside(self, seat: Seat) -> int:
        """How many other jobs may hold memory."""
        with self._changed:
            return sum(other.state not in CLOSED for other in self._seats if other is not seat)

    # -- decisions, with the lock held ---------------------------------------------------------

    def _settle(self) -> None:
        """Begins or ends the time in which prepared jobs are timed."""
        states = {seat.state for seat in self._seats}
        if self._timing:
            self._timing = bool(states & {State.WANTS_TO_BE_TIMED, State.TIMED})
        elif State.WANTS_TO_BE_TIMED in states:
            self._timing = states <= WAITING and not any(map(self._may_go_on, self._seats))

    def _may_go_on(self, seat: Seat) -> bool:
        if seat.state is State.WANTS_TO_BE_TIMED:
            return self._may_be_timed(seat)
        if seat.state is State.WANTS_TO_BE_ALONE:
            return not self.open_beside(seat)
        return self._may_prepare(seat)

    def _may_prepare(self, seat: Seat) -> bool:
        others = [other for other in self._seats if other is not seat]
        if self._timing or sum(other.state is State.PREPARES for other in others) >= self.ahead:
            return False
        first = {State.COMES, State.WANTS_TO_PREPARE}
        if any(o.state in SINGLE or (o.state in first and o.number < seat.number) for o in others):
            return False
        beside = self.open_beside(seat)
        return not beside or self.room(beside)

    def _may_be_timed(self, seat: Seat) -> bool:
        waiting = [other for other in self._seats if other.state is State.WANTS_TO_BE_TIMED]
        return (
            self._timing
            and all(other.state in WAITING for other in self._seats)
            and seat is min(waiting, key=lambda other: other.number)
        )


class Seat:
    """The gate as one lane sees it, for one job after another.

    ``beside``: the most other jobs that prepared at the same time as this job since it began.
    """

    def __init__(self, gate: DeviceGate, number: int) -> None:
        self._gate = gate
        self.state = State.COMES
        self.number = number  # of the job in the order in which jobs begin
        self.beside = 0
        self.on_waiting: Callable[[], object] = lambda: None

    def begin(self, number: int, on_waiting: Callable[[], object]) -> None:
        """A new job. ``on_waiting`` is called when the job is prepared and begins to wait."""
        self.number, self.on_waiting, self.beside = number, on_waiting, 0

    def end_job(self) -> None:
        """The job's workers have ended."""
        self._gate.enter(self, State.COMES)

    def leave(self) -> None:
        """The lane has no more jobs."""
        self._gate.leave(self)

    @contextmanager
    def preparing(self) -> Iterator[None]:
        """Waits until the job may start its workers and compile. Others may do the same beside it."""
        if self.state is State.MUST_BE_ALONE:
            self._gate.wait(self, State.WANTS_TO_BE_ALONE, State.ALONE)
        elif self.state is not State.ALONE:
            self._gate.wait(self, State.WANTS_TO_PREPARE, State.PREPARES)
        try:
            yield
        finally:
            self._ends(State.PREPARES)

    @contextmanager
    def timing(self) -> Iterator[float]:
        """Waits until nothing else runs. The value is the seconds that the job has waited."""
        self.on_waiting()
        alone = self.state is State.ALONE
        waited_s = 0.0 if alone else self._gate.wait(self, State.WANTS_TO_BE_TIMED, State.TIMED)
        try:
            yield waited_s
        finally:
            self._ends(State.TIMED)

    def asks_to_be_alone(self) -> bool:
        """Whether others hold memory or prepared beside it. Then the next ``preparing`` waits to be alone."""
        if self.state is State.ALONE or not (self.beside or self._gate.open_beside(self)):
            return False
        self._gate.enter(self, State.MUST_BE_ALONE)
        return True

    def _ends(self, state: State) -> None:
        if self.state is state:
            self._gate.enter(self, State.OPEN)
