"""The warm-up: how many rounds it has, and whether its last round counts as timed."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from harness.schema import Round
from harness.timing.measure import has_settled
from harness.timing.rounds import Recompilations

MOST_ROUNDS = 12
MOST_S = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class WarmUp:
    """``compiled``: whether a variant compiled anything in the last round."""

    rounds: tuple[Round, ...]
    settled: bool
    compiled: bool

    @property
    def counting(self) -> tuple[Round, ...]:
        """The last round, if it counts as timed: times have settled, and nothing was compiled in it."""
        return self.rounds[-1:] if self.settled and not self.compiled else ()

    def fastest_s(self, variant: str) -> float:
        return min(r.seconds[variant] for r in self.rounds)


def warm_up(
    rounds: Iterator[Round],
    recompilations: Recompilations,
    clock: Callable[[], float] = time.perf_counter,
    allocations: Callable[[], object] = lambda: None,
) -> WarmUp:
    """Runs rounds until times and page faults have settled, at most ``MOST_ROUNDS`` or ``MOST_S`` seconds.

    A round in which ``allocations()`` changed has not settled: the device's allocator still asks the driver.
    """
    history, start = list[Round](), clock()
    settled = False
    while not settled and len(history) < MOST_ROUNDS and clock() - start <= MOST_S:
        recompilations.start()
        before = allocations()
        history.append(next(rounds))
        settled = has_settled(history) and allocations() == before
    return WarmUp(rounds=tuple(history), settled=settled, compiled=bool(recompilations.counts()))
