"""``--time-budget``: how long each job may be timed, so that a whole run ends in time.

Time for building, compiling and the minimum of rounds is reserved for every job. The rest goes to
the jobs that would stop with an open verdict. The share that a job does not use goes to later jobs.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from statistics import fmean

from runner.engine import Gate

PRIOR_OPEN = 0.5  # prior share of jobs that need more time; it weighs as much as one finished job
USED_UP = 0.9  # a job that used this share of its allowance counts as one whose verdict stayed open

Allowance = Callable[[float], float]
"""``allowance(timed)``: total seconds for the job's rounds, of which ``timed`` seconds have passed."""


@dataclass(slots=True)
class _Job:
    began: float
    timed_s: float = 0.0
    allowed_s: float = 0.0
    overhead_s: float = 0.0  # everything but its timed rounds and waiting for other jobs

    @property
    def used_up(self) -> bool:
        return self.timed_s >= USED_UP * self.allowed_s


class TimeBudget:
    """The time budget of one run with ``jobs`` jobs, ``side_by_side`` at once. It starts when created.

    ``ahead``: how many jobs prepare at once on each device; they are timed one after another. Threads may
    share the budget.
    """

    def __init__(
        self,
        budget_s: float,
        jobs: int,
        side_by_side: int = 1,
        ahead: int = 1,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._clock = clock
        self._end = clock() + budget_s
        self._left = jobs
        self._side_by_side = max(1, side_by_side)
        self._ahead = ahead
        self._ended: list[_Job] = []
        self._lock = threading.Lock()

    def exhausted(self) -> bool:
        return self._clock() >= self._end

    @contextmanager
    def job(self, gate: Gate) -> Iterator[Allowance]:
        """One job's share. The job runs until the context ends. ``gate`` knows how long it has waited."""
        job = _Job(began=self._clock())

        def spent() -> None:
            job.overhead_s = self._clock() - job.began - job.timed_s - gate.waited_s

        def allowance(timed_s: float) -> float:
            with self._lock:
                job.timed_s = timed_s
                spent()
                job.allowed_s = self._share(job)
                return job.allowed_s

        try:
            yield allowance
        finally:
            with self._lock:
                self._left -= 1
                spent()
                self._ended.append(job)

    def _share(self, job: _Job) -> float:
        """Total seconds for the rounds of the current job, after reserving what the other jobs need."""
        others = max(0.0, (self._left - 1) / self._side_by_side)
        decided = [ended.timed_s for ended in self._ended if not ended.used_up]
        overheads = [job.overhead_s, *(ended.overhead_s for ended in self._ended)]
        reserved = others * (fmean(overheads) / self._ahead + (fmean(decided) if decided else 0.0))
        spare = self._end - self._clock() + job.timed_s - reserved
        opens = (PRIOR_OPEN + sum(ended.used_up for ended in self._ended)) / (1 + len(self._ended))
        return max(0.0, spare / (1 + others * opens))
