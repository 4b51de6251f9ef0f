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


@dataclass(frozen=True, slots=True, kw_only=True)
class _EndedJob:
    overhead_s: float  # everything but its timed rounds and waiting for other jobs
    timed_s: float
    used_up: bool


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
        self._ended: list[_EndedJob] = []
        self._lock = threading.Lock()

    def exhausted(self) -> bool:
        return self._clock() >= self._end

    @contextmanager
    def job(self, gate: Gate) -> Iterator[Allowance]:
        """One job's share. The job runs until the context ends. ``gate`` knows how long it has waited."""
        share = _Share(began=self._clock())

        def allowance(timed_s: float) -> float:
            with self._lock:
                share.timed_s = timed_s
                overhead_s = self._clock() - share.began - timed_s - gate.waited_s
                share.allowed_s = self._share(timed_s, overhead_s)
                return share.allowed_s

        try:
            yield allowance
        finally:
            with self._lock:
                self._left -= 1
                self._ended.append(
                    _EndedJob(
                        overhead_s=self._clock() - share.began - share.timed_s - gate.waited_s,
                        timed_s=share.timed_s,
                        used_up=share.timed_s >= USED_UP * share.allowed_s,
                    )
                )

    def _share(self, timed_s: float, overhead_s: float) -> float:
        """Total seconds for the rounds of the current job, after reserving what the other jobs need."""
        others = max(0.0, (self._left - 1) / self._side_by_side)
        decided = [job.timed_s for job in self._ended if not job.used_up]
        overheads = [overhead_s, *(job.overhead_s for job in self._ended)]
        reserved = others * (fmean(overheads) / self._ahead + (fmean(decided) if decided else 0.0))
        spare = self._end - self._clock() + timed_s - reserved
        opens = (PRIOR_OPEN + sum(job.used_up for job in self._ended)) / (1 + len(self._ended))
        return max(0.0, spare / (1 + others * opens))


@dataclass(slots=True)
class _Share:
    began: float
    timed_s: float = 0.0
    allowed_s: float = 0.0


@contextmanager
def share_of(budget: TimeBudget | None, gate: Gate) -> Iterator[Allowance | None]:
    """One job's share of the budget; None without a budget."""
    if budget is None:
        yield None
    else:
        with budget.job(gate) as allowance:
            yield allowance
