"""``--prepare-ahead``: which jobs of a device prepare side by side, and when each job is timed alone.

Up to ``ahead`` jobs build, compile and check parity at the same time. A job that is prepared waits with its
workers. When no job prepares, and no other job can begin, the waiting jobs are timed one after another, in
the order in which they began. Then the next jobs prepare. Jobs never prepare while a job is timed.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum, auto

CHECK_S = 0.5  # a waiting job looks this often at the free memory, and whether the run was abandoned


def sessions(ahead: int) -> int:
    """How many jobs of a device may be open at once: those that prepare, and as many that wait."""
    return 2 * ahead if ahead > 1 else 1


class State(Enum):
    """What the job of a seat does. The state lasts until the next wait, or until the job has ended."""

    COMES = auto()  # it is to prepare, and holds no memory yet
    PREPARES = auto()
    PREPARED = auto()
    TIMED = auto()  # or it will be, after others that have this state


@dataclass(slots=True, eq=False)
class DeviceGate:
    """The gate of one device. Each lane of jobs has a seat.

    ``room(open)``: whether the memory suffices for another job beside ``open`` others. ``check()`` is called
    while a job waits, and raises an exception to end the job.
    """

    ahead: int = 1
    room: Callable[[int], bool] = lambda _: True
    check: Callable[[], None] = lambda: None
    seats: list[Seat] = field(init=False, default_factory=list)
    # a thread that holds it may take it again
    changed: threading.Condition = field(init=False, default_factory=threading.Condition)

    def seat(self) -> Seat:
        """A place for one job at a time."""
        self.seats.append(seat := Seat(self))
        return seat


@dataclass(slots=True, eq=False)
class Seat:
    """The gate as one lane sees it, for one job after another.

    ``number``: of the job. ``beside``: the most others that prepared at the same time since it began.
    ``alone``: no other job is open when it prepares, and until the lane turns to another job.
    """

    gate: DeviceGate
    number: int = 0
    beside: int = 0
    state: State = State.COMES
    alone: bool = False

    def begin(self, number: int) -> None:
        """A job begins, or goes on after a pause. The workers of the lane's job before have ended."""
        with self.gate.changed:
            self.number, self.beside, self.alone = number, 0, False
            self.enter(State.COMES)

    def leave(self) -> None:
        """The lane has no more jobs."""
        with self.gate.changed:
            self.gate.seats.remove(self)
            self.gate.changed.notify_all()

    def wait_to_prepare(self) -> None:
        """Until the job may start its workers and compile. Those that it had before have ended."""
        self._wait(State.COMES, self.may_prepare, State.PREPARES)

    def wait_to_be_timed(self) -> float:
        """Until nothing else runs; returns the seconds."""
        return self._wait(State.PREPARED, self._may_be_timed, State.TIMED)

    def asks_to_be_alone(self) -> bool:
        """Whether others hold memory or prepared beside it. Then it is alone when it prepares again."""
        with self.gate.changed:
            crowded = not self.alone and bool(self.beside or self._open_beside())
            self.alone = self.alone or crowded
            return crowded

    def _wait(self, wanted: State, may: Callable[[], bool], then: State) -> float:
        began = time.monotonic()
        with self.gate.changed:
            self.enter(wanted)
            while not may():  # the free memory changes without notice
                self.gate.changed.wait(CHECK_S)
                self.gate.check()
            self.enter(then)
        return time.monotonic() - began

    # -- with the lock held ------------------------------------------------------------------

    def enter(self, state: State) -> None:
        self.state = state
        together = [seat for seat in self.gate.seats if seat.state is State.PREPARES]
        for seat in together:
            seat.beside = max(seat.beside, len(together) - 1)
        self.gate.changed.notify_all()

    def _open_beside(self) -> int:
        """How many other jobs may hold memory."""
        return sum(seat.state is not State.COMES for seat in self.gate.seats if seat is not self)

    def may_prepare(self) -> bool:
        gate, beside = self.gate, self._open_beside()
        if not beside or not self._is_first(State.COMES):
            return self._is_first(State.COMES)
        if any(seat.alone or seat.state is State.TIMED for seat in gate.seats):
            return False
        return sum(seat.state is State.PREPARES for seat in gate.seats) < gate.ahead and gate.room(beside)

    def _may_be_timed(self) -> bool:
        """Gives all jobs that are prepared their turn, when it has come."""
        seats, waiting = self.gate.seats, (State.COMES, State.PREPARED)
        can_begin = (seat.may_prepare() for seat in seats if seat.state is State.COMES)
        if all(seat.state in waiting for seat in seats) and not any(can_begin):
            for seat in seats:
                if seat.state is State.PREPARED:
                    seat.state = State.TIMED
        return self.state is State.TIMED and self._is_first(State.TIMED)

    def _is_first(self, state: State) -> bool:
        return all(seat.number >= self.number for seat in self.gate.seats if seat.state is state)
