"""Rounds before those that count: how many, and whether the last of them counts after all."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from harness.measure import has_settled
from harness.recompilations import Recompilations
from harness.schema import Round

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
        """The last round, where it is as good as a timed one: settled, and with nothing compiled in it."""
        return self.rounds[-1:] if self.settled and not self.compiled else ()

    def fastest_s(self, variant: str) -> float:
        return min(one.seconds[variant] for one in self.rounds)


def warm_up(
    rounds: Iterator[Round], recompilations: Recompilations, clock: Callable[[], float] = time.perf_counter
) -> WarmUp:
    """Takes rounds until times and page faults have settled, ``MOST_ROUNDS`` are done or ``MOST_S`` over."""
    history, start = list[Round](), clock()
    settled = False
    while not settled and len(history) < MOST_ROUNDS and clock() - start <= MOST_S:
        recompilations.start()
        history.append(next(rounds))
        settled = has_settled(history)
    return WarmUp(rounds=tuple(history), settled=settled, compiled=bool(recompilations.found()))
