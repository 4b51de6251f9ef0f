"""``--time-budget``: how long each job may be timed, so that a whole run ends in time.

What every job needs (building, compiling, its least rounds) is spent anyway. What is
left goes to the jobs whose verdict is still open when they would otherwise stop;
one that is decided early leaves its share to those that come after it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from statistics import fmean

PRIOR_OPEN = 0.5  # share of jobs expected to want more time, before any has ended; worth one job
USED_UP = 0.9  # a job that was timed for so much of its allowance had an open verdict to the end

Allowance = Callable[[float], float]
"""Seconds that the job may be timed in all, when it has been timed for so many."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _EndedJob:
    overhead_s: float  # everything but its timed rounds
    timed_s: float
    used_up: bool


class TimeBudget:
    """The time of one run, from its creation on, over ``jobs`` of which ``side_by_side`` run at once.

    Lanes in threads may share it.
    """

    def __init__(
        self, budget_s: float, jobs: int, side_by_side: int = 1, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._clock = clock
        self._end = clock() + budget_s
        self._left = jobs
        self._side_by_side = max(1, side_by_side)
        self._ended: list[_EndedJob] = []
        self._lock = threading.Lock()

    def exhausted(self) -> bool:
        return self._clock() >= self._end

    @contextmanager
    def job(self) -> Iterator[Allowance]:
        """A job's share. While it is open the job counts as running; then it is over."""
        share = _Share(began=self._clock())

        def allowance(timed_s: float) -> float:
            with self._lock:
                share.timed_s = timed_s
                share.allowed_s = self._share(timed_s, self._clock() - share.began - timed_s)
                return share.allowed_s

        try:
            yield allowance
        finally:
            with self._lock:
                self._left -= 1
                self._ended.append(
                    _EndedJob(
                        overhead_s=self._clock() - share.began - share.timed_s,
                        timed_s=share.timed_s,
                        used_up=share.timed_s >= USED_UP * share.allowed_s,
                    )
                )

    def _share(self, timed_s: float, overhead_s: float) -> float:
        """Seconds that the job which asks may be timed in all: others' needs are set aside first."""
        others = max(0.0, (self._left - 1) / self._side_by_side)
        decided = [job.timed_s for job in self._ended if not job.used_up]
        needed = fmean([overhead_s, *(job.overhead_s for job in self._ended)])
        needed += fmean(decided) if decided else 0.0
        spare = self._end - self._clock() + timed_s - others * needed
        opens = (PRIOR_OPEN + sum(job.used_up for job in self._ended)) / (1 + len(self._ended))
        return max(0.0, spare / (1 + others * opens))


@dataclass(slots=True)
class _Share:
    began: float
    timed_s: float = 0.0
    allowed_s: float = 0.0


@contextmanager
def share_of(budget: TimeBudget | None) -> Iterator[Allowance | None]:
    """One job's share of the budget; None where there is none."""
    if budget is None:
        yield None
    else:
        with budget.job() as allowance:
            yield allowance
