"""The paired loop: every variant once a round, in a random order that is kept.

The clock, the device's synchronisation, the reseeding and the fault counter
are injected, so that order and digits can be tested without a device.
"""

from __future__ import annotations

import gc
import math
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from harness.schema import Protocol, Round


@dataclass(frozen=True, slots=True, kw_only=True)
class Instruments:
    """What the loop reads and does round a sample.

    ``clock()`` in seconds; ``synchronise()`` waits for the device;
    ``reseed()`` gives every sample the same random numbers;
    ``minor_faults()`` counts this process's page faults so far;
    ``announce(variant)`` says what runs now, outside the timed part.
    """

    clock: Callable[[], float]
    synchronise: Callable[[], None]
    reseed: Callable[[], None]
    minor_faults: Callable[[], int]
    announce: Callable[[str], None]
    prefill_s: Callable[[], float | None] = lambda: None  # of the steps since it was last asked


class LapClock:
    """Adds up how long steps took until their lap: for steps of two parts, prefill and decode."""

    def __init__(self, clock: Callable[[], float], synchronise: Callable[[], None]) -> None:
        self._clock = clock
        self._synchronise = synchronise
        self._began = 0.0
        self._total: float | None = None

    def timing(self, step: Callable[[], object]) -> Callable[[], object]:
        """``step``, its beginning noted."""

        def timed() -> object:
            self._began = self._clock()
            return step()

        return timed

    def lap(self) -> None:
        """Called by the step when its first part is done."""
        self._synchronise()
        self._total = (self._total or 0.0) + self._clock() - self._began

    def take(self) -> float | None:
        """Seconds of all first parts since the last call; None when there was none."""
        total, self._total = self._total, None
        return total


def round_order(variants: tuple[str, ...], protocol: Protocol, index: int) -> tuple[str, ...]:
    """The order of round ``index``: uniform over permutations, the same for the same seed and process."""
    of_process = f"/{protocol.process}" if protocol.process else ""
    order = list(variants)
    random.Random(f"{protocol.seed}/{index}{of_process}").shuffle(order)
    return tuple(order)


def iterations_for(step_s: float, min_sample_s: float, *, most: int = 1000) -> int:
    """Steps per sample so that a sample of the fastest variant lasts ``min_sample_s``."""
    if step_s <= 0:
        return most
    return max(1, min(most, math.ceil(min_sample_s / step_s)))


SHORT_STEPS = 20  # from so many in a sample on, single steps say too little of steps in a row
LONGEST_SAMPLE_S = 0.5  # of the slowest variant, for more than a thousand steps of the fastest


def enough_iterations(
    history: Sequence[Round], again: Callable[[int], Round], min_sample_s: float, *, attempts: int = 3
) -> int:
    """Steps per sample, the same for every variant, so that the fastest's sample lasts ``min_sample_s``.

    ``history`` holds rounds of single steps. A step of microseconds takes several times as long
    alone, just after the caches were swept, as it takes in a row: so where many steps go into a
    sample, ``again(iterations)`` times a round of such samples, and they are lengthened until it agrees.
    """
    last = history[-2:]
    fastest = min(min(one.seconds.values()) for one in last)
    slowest = max(min(one.seconds[variant] for one in last) for variant in last[0].seconds)
    most = max(1000, min(100_000, int(LONGEST_SAMPLE_S / max(slowest, 1e-9))))
    iterations = iterations_for(fastest, min_sample_s, most=most)
    for _ in range(attempts):
        if iterations < SHORT_STEPS:
            break
        needed = iterations_for(min(again(iterations).seconds.values()), min_sample_s, most=most)
        if needed <= 1.2 * iterations:
            break
        iterations = needed
    return iterations


def measure_round(
    steps: Mapping[str, Callable[[], object]],
    order: tuple[str, ...],
    iterations: int,
    instruments: Instruments,
) -> Round:
    """Times each variant once, ``iterations`` steps long; figures are per step."""
    seconds: dict[str, float] = {}
    faults: dict[str, float] = {}
    prefill: dict[str, float] = {}
    for variant in order:
        step = steps[variant]
        instruments.announce(variant)
        instruments.reseed()
        instruments.synchronise()
        faults_before = instruments.minor_faults()
        start = instruments.clock()
        for _ in range(iterations):
            step()
        instruments.synchronise()
        end = instruments.clock()
        seconds[variant] = (end - start) / iterations
        faults[variant] = (instruments.minor_faults() - faults_before) / iterations
        first_part = instruments.prefill_s()
        if first_part is not None:
            prefill[variant] = first_part / iterations
    return Round(order=order, seconds=seconds, minor_faults=faults, prefill_s=prefill)


OLDEST = 2  # generation of the garbage collector


@contextmanager
def quiet_collector(*, thorough: bool = True) -> Iterator[Callable[[], None]]:
    """Garbage collection off; yields a function that collects between rounds.

    What already lives is frozen, so that a collection costs well under a
    millisecond instead of walking everything torch has imported. That walk, some tenths of
    a second, is made first, unless it is known to find nothing: then not ``thorough``.
    """
    was_enabled = gc.isenabled()
    gc.collect(OLDEST if thorough else OLDEST - 1)
    gc.freeze()
    gc.disable()
    try:
        yield lambda: void(gc.collect())
    finally:
        gc.unfreeze()
        if was_enabled:
            gc.enable()


def void(_: object) -> None:
    """Turns a result into none, for use as a callback."""


LONG_ROUND_S = 0.1


def has_settled(history: list[Round]) -> bool:
    """Whether warm-up may end: no variant's last round was much better than the one before.

    Page faults per step fall as the allocator's heap grows to what the steps
    need; a fall of more than 10 % (and 64 faults) from one round to the next
    is still settling. A time more than 25 % below the last round's is, too.
    Short rounds cost little: there are three of them at least, two of long ones.
    """
    if len(history) < 2:
        return False
    if len(history) == 2 and sum(history[-1].seconds.values()) < LONG_ROUND_S:
        return False
    last, previous = history[-1], history[-2]
    for variant, now in last.minor_faults.items():
        before = previous.minor_faults[variant]
        if before - now > max(64.0, 0.10 * before):
            return False
        if last.seconds[variant] < 0.75 * previous.seconds[variant]:
            return False
    return True
