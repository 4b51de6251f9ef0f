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
from enum import Enum, auto

CHECK_S = 0.5  # a waiting job looks this often at the free memory, and whether the run was abandoned


def sessions(ahead: int) -> int:
    """How many jobs of a device may be open at once: those that prepare, and as many that wait."""
    return 2 * ahead if ahead > 1 else 1


class _State(Enum):
    BUSY = auto()  # starts, or writes a record
    WANTS_TO_PREPARE = auto()
    PREPARES = auto()
    WANTS_TO_BE_TIMED = auto()
    TIMED = auto()


class DeviceGate:
    """The gate of one device. Each lane of jobs has a ``Seat``, and all seats are made before jobs start.

    ``first``: at most so many jobs are open until one of them has ended. ``room(open)``: whether the memory
    suffices for another job beside ``open`` others. ``check()`` is called while a job waits, and raises an
    exception to end the job.
    """

    def __init__(
        self,
        ahead: int = 1,
        *,
        first: int | None = None,
        room: Callable[[int], bool] = lambda _: True,
        check: Callable[[], None] = lambda: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._ahead = ahead
        self._first = first
        self._room = room
        self._check = check
        self._clock = clock
        self._seats: list[Seat] = []
        self._timing = False  # prepared jobs are timed now; no job may prepare
        self._changed = threading.Condition()

    def seat(self, number: int = 0) -> Seat:
        """A place for one more job at a time. ``number``: of its first job."""
        seat = Seat(self, number)
        self._seats.append(seat)
        return seat

    # -- for seats -----------------------------------------------------------------

    def set(self, seat: Seat, state: _State) -> None:
        with self._changed:
            self._enter(seat, state)

    def leave(self, seat: Seat) -> None:
        with self._changed:
            self._seats.remove(seat)
            self._settle()
            self._changed.notify_all()

    def end_job(self, seat: Seat) -> None:
        """The job's workers have ended."""
        with self._changed:
            if seat.open:
                self._first = None
            seat.open = seat.alone = seat.comes = False
            self._enter(seat, _State.BUSY)

    def wait_to_prepare(self, seat: Seat) -> None:
        self._wait(seat, _State.WANTS_TO_PREPARE, _State.PREPARES, self._may_prepare)

    def wait_to_be_timed(self, seat: Seat) -> float:
        return self._wait(seat, _State.WANTS_TO_BE_TIMED, _State.TIMED, self._may_be_timed)

    def others_are_open(self, seat: Seat) -> bool:
        with self._changed:
            return any(one.open for one in self._seats if one is not seat)

    # -- decisions, with the lock held ---------------------------------------------------------

    def _wait(self, seat: Seat, wanted: _State, then: _State, may: Callable[[Seat], bool]) -> float:
        """Waits for the state ``then``; returns the seconds."""
        began = self._clock()
        with self._changed:
            self._enter(seat, wanted)
            try:
                while not may(seat):
                    self._changed.wait(CHECK_S)
                    self._check()
                    self._settle()  # the free memory changes without notice
            except BaseException:
                self._enter(seat, _State.BUSY)
                raise
            self._enter(seat, then)
        waited = self._clock() - began
        seat.waited_s += waited
        return waited

    def _enter(self, seat: Seat, state: _State) -> None:
        seat.state = state
        if state is _State.WANTS_TO_PREPARE:
            seat.open = seat.comes = False  # the workers of the job's last session have ended
        elif state is _State.PREPARES:
            seat.open = True
            together = [one for one in self._seats if one.state is _State.PREPARES]
            for one in together:
                one.beside = max(one.beside, len(together) - 1)
        self._settle()
        self._changed.notify_all()

    def _settle(self) -> None:
        """Begins or ends the time in which prepared jobs are timed."""
        states = {seat.state for seat in self._seats}
        if self._timing:
            self._timing = bool(states & {_State.WANTS_TO_BE_TIMED, _State.TIMED})
        elif _State.WANTS_TO_BE_TIMED in states:
            others = [seat for seat in self._seats if seat.state is not _State.WANTS_TO_BE_TIMED]
            self._timing = not any(
                seat.state is not _State.WANTS_TO_PREPARE or self._may_prepare(seat) for seat in others
            )

    def _may_prepare(self, seat: Seat) -> bool:
        others = [one for one in self._seats if one is not seat]
        opened = sum(one.open for one in others)
        if self._timing or sum(one.state is _State.PREPARES for one in others) >= self._ahead:
            return False
        if seat.alone or any(one.alone for one in others):
            return seat.alone and not opened
        earlier = [one for one in others if one.number < seat.number]
        if any(one.comes or one.state is _State.WANTS_TO_PREPARE for one in earlier):
            return False
        if self._first is not None and opened >= self._first:
            return False
        return not opened or self._room(opened)

    def _may_be_timed(self, seat: Seat) -> bool:
        waiting = [one for one in self._seats if one.state is _State.WANTS_TO_BE_TIMED]
        still = {_State.WANTS_TO_BE_TIMED, _State.WANTS_TO_PREPARE}
        return (
            self._timing
            and all(one.state in still for one in self._seats)
            and seat is min(waiting, key=lambda one: one.number)
        )


class Seat:
    """The gate as one lane sees it: ``runner.engine.Gate``, for one job after another."""

    def __init__(self, gate: DeviceGate, number: int) -> None:
        self._gate = gate
        self.state = _State.BUSY
        self.number = number  # of the job in the order in which jobs begin
        self.comes = True  # the job has been taken, and has not asked to prepare yet
        self.open = False  # the job may hold memory
        self.alone = False  # the job may only run while no other job is open
        self.beside = 0
        self.waited_s = 0.0
        self.on_waiting: Callable[[], object] = lambda: None

    def begin(self, number: int, on_waiting: Callable[[], object]) -> None:
        """A new job. ``on_waiting`` is called when the job is prepared and begins to wait."""
        self.number, self.on_waiting, self.comes = number, on_waiting, True
        self.beside, self.waited_s = 0, 0.0

    def end_job(self) -> None:
        self._gate.end_job(self)

    def leave(self) -> None:
        """The lane has no more jobs."""
        self._gate.leave(self)

    @contextmanager
    def preparing(self) -> Iterator[None]:
        self._gate.wait_to_prepare(self)
        try:
            yield
        finally:
            self._gate.set(self, _State.BUSY)

    @contextmanager
    def timing(self) -> Iterator[float]:
        self.on_waiting()
        waited = self._gate.wait_to_be_timed(self)
        try:
            yield waited
        finally:
            self._gate.set(self, _State.BUSY)

    def asks_to_be_alone(self) -> bool:
        if self.alone or not self._gate.others_are_open(self):
            return False
        self.alone = True
        return True
