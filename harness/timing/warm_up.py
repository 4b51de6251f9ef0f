"""The warm-up: load before it, how many rounds it has, and whether its last round counts as timed."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from harness.schema import Round
from harness.timing.measure import has_settled
from harness.timing.rounds import Recompilations

MOST_ROUNDS = 12
LEAST_S, MOST_S = 1.0, 3.0  # of the load
MIXED_S = 0.5  # of all variants in turn, at its end
EVERY_S = 0.1  # of a turn
LOOKS = 4  # readings that must agree, one after each turn
SPREAD = 0.03  # of clock and power, largest to smallest

Reading = tuple[float, float]
"""The clock (MHz) and the power (W)."""


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
    most_s: float = 10.0,
) -> WarmUp:
    """Runs rounds until times and page faults have settled, at most ``MOST_ROUNDS`` or ``most_s`` seconds.

    A round in which ``allocations()`` changed has not settled: the device's allocator still asks the driver.
    """
    history, start = list[Round](), clock()
    settled = False
    while not settled and len(history) < MOST_ROUNDS and clock() - start <= most_s:
        recompilations.start()
        before = allocations()
        history.append(next(rounds))
        settled = has_settled(history) and allocations() == before
    return WarmUp(rounds=tuple(history), settled=settled, compiled=bool(recompilations.counts()))


def heat(
    steps: Mapping[str, Callable[[], object]],
    synchronize: Callable[[], None],
    read: Callable[[], Reading] | None,
    announce: Callable[[str], None],
) -> float:
    """Runs a variant until clock and power have settled, then all in turn. Returns the seconds that it took.

    A GPU that was idle while a compiler worked begins at its highest clock, and lowers it when its power
    limit acts, seconds after its load begins. Without load before them, the rounds would show a cold card.
    A reading of the power is a mean of the last second: of turns of several variants it would never settle.
    ``read`` None: there are no readings, and one variant runs for ``LEAST_S``.
    """
    began, readings = time.perf_counter(), list[Reading]()

    def turn(name: str) -> None:
        announce(name)
        start = time.perf_counter()
        while time.perf_counter() - start < EVERY_S:
            steps[name]()
            synchronize()

    spent_s, settled = 0.0, False
    while not settled and spent_s < MOST_S - MIXED_S:
        turn(next(iter(steps)))
        try:
            readings += [read()] if read is not None else []
        except Exception as error:  # of a card or a driver that does not tell, or no longer
            print(f"no readings while heating: {type(error).__name__}: {error}", flush=True)
            read = None
        spent_s = time.perf_counter() - began
        settled = spent_s >= LEAST_S and (read is None or _settled(readings))
    alone_s = spent_s
    while spent_s < alone_s + MIXED_S:
        for name in steps:
            turn(name)
        spent_s = time.perf_counter() - began
    return spent_s


def _settled(readings: list[Reading]) -> bool:
    last = readings[-LOOKS:]
    return len(last) == LOOKS and all(
        max(values) - min(values) <= SPREAD * max(values) for values in zip(*last, strict=True)
    )
