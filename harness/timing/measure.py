"""The paired loop: every round times every variant once, in a random order that the record keeps.

Clock, synchronization, seeding and the counter of page faults are injected, so that tests need no device.
"""

from __future__ import annotations

import gc
import math
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import PurePath

from harness.schema import BASELINE, Job, Protocol, Round


@dataclass(frozen=True, slots=True, kw_only=True)
class Instruments:
    """The functions that the loop calls around a sample.

    ``clock()`` in seconds; ``synchronize()`` waits for the device; ``reseed()`` gives every sample the same
    random numbers; ``minor_faults()`` counts the page faults of this process so far; ``announce(variant)``
    is called before the timed part of a variant.
    """

    clock: Callable[[], float]
    synchronize: Callable[[], None]
    reseed: Callable[[], None]
    minor_faults: Callable[[], int]
    announce: Callable[[str], None]
    prefill_s: Callable[[], float | None] = lambda: None  # of the steps since its last call
    look: Callable[[str, object], None] = lambda *_: None  # at a sample's last result


class LapClock:
    """Adds up the times of the first parts of steps with two parts, prefill and decode."""

    def __init__(self, clock: Callable[[], float], synchronize: Callable[[], None]) -> None:
        self._clock = clock
        self._synchronize = synchronize
        self._began = 0.0
        self._total: float | None = None

    def timing(self, step: Callable[[], object]) -> Callable[[], object]:
        """``step`` with a note of its start time."""

        def timed() -> object:
            self._began = self._clock()
            return step()

        return timed

    def lap(self) -> None:
        """Called by the step when its first part is done."""
        self._synchronize()
        self._total = (self._total or 0.0) + self._clock() - self._began

    def take(self) -> float | None:
        """Seconds of all first parts since the last call; None if there was none."""
        total, self._total = self._total, None
        return total


def round_order(variants: tuple[str, ...], protocol: Protocol, index: int) -> tuple[str, ...]:
    """The order of round ``index``: rounds come in twos, a uniform permutation and its reverse.

    Over each two rounds all variants have the same mean position. Seed and number of the process fix the
    permutations.
    """
    of_process = f"/{protocol.process}" if protocol.process else ""
    return _and_reverse(variants, f"{protocol.seed}/{index // 2}{of_process}", reverse=index % 2 == 1)


def placement(variants: tuple[str, ...], job: Job) -> tuple[str, ...]:
    """The order in which the modules of a job are copied and compiled.

    The place in memory can make a copy faster or slower by a percent, in every process alike. The order is
    drawn for each job; processes come in twos, a permutation and its reverse. The folder of a suite's file
    does not change it.
    """
    case, process = job.case, job.protocol.process
    suite = PurePath(case.suite).name
    drawn = f"{job.protocol.seed}/placement/{suite}/{case.name}/{case.mode.value}/{process // 2}"
    return _and_reverse(variants, drawn, reverse=process % 2 == 1)


def _and_reverse(names: tuple[str, ...], drawn: str, *, reverse: bool) -> tuple[str, ...]:
    order = list(names)
    random.Random(drawn.encode(errors="surrogatepass")).shuffle(order)  # names may be half a pair
    return tuple(reversed(order)) if reverse else tuple(order)


def iterations_for(step_s: float, min_sample_s: float, *, most: int = 1000) -> int:
    """The steps per sample (at most ``most``) that make ``step_s`` seconds last ``min_sample_s``."""
    if step_s <= 0:
        return most
    return max(1, min(most, math.ceil(min_sample_s / step_s)))


SHORT_STEPS = 20  # with as many steps or more, calibrate on whole samples
ATTEMPTS = 3  # whole samples from which the number of steps is corrected
LONGEST_SAMPLE_S = 0.5  # limits the slowest variant's sample where more than 1000 steps are needed


STREAM, STREAM_S, LONGEST_STREAM_S = 16, 0.05, 0.25
"""Of a sample on an accelerator: its fewest steps, its shortest time (s), and its longest, for which it has
fewer steps. The host runs ahead into the next step, as in a training loop. Around a wait it cannot.
"""


def stream_of(step_s: float, most: int = STREAM) -> int:
    """The steps between two waits, of steps that take so long (s): at least 2, and at most ``most``."""
    return min(most, max(2, int(LONGEST_STREAM_S / max(step_s, 1e-9))))


def enough_iterations(history: Sequence[Round], again: Callable[[int], Round], min_sample_s: float) -> int:
    """Steps per sample for all variants, so that the fastest variant's sample lasts ``min_sample_s``.

    ``history`` holds rounds of single steps. A single step of microseconds starts with cold caches and takes
    several times as long as one of many steps in a row. With many steps per sample, ``again(iterations)``
    therefore times a round of whole samples, until their length is sufficient.
    """
    last = history[-2:]
    fastest = min(min(r.seconds.values()) for r in last)
    slowest = max(min(r.seconds[variant] for r in last) for variant in last[0].seconds)
    most = max(1000, min(100_000, int(LONGEST_SAMPLE_S / max(slowest, 1e-9))))
    iterations = iterations_for(fastest, min_sample_s, most=most)
    for _ in range(ATTEMPTS):
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
    """Times one sample of ``iterations`` steps of each variant. All results are per step."""
    seconds: dict[str, float] = {}
    faults: dict[str, float] = {}
    prefill: dict[str, float] = {}
    for variant in order:
        step = steps[variant]
        instruments.announce(variant)
        instruments.reseed()
        instruments.synchronize()
        faults_before = instruments.minor_faults()
        start = instruments.clock()
        for _ in range(iterations - 1):
            step()
        result = step()
        instruments.synchronize()
        end = instruments.clock()
        seconds[variant] = (end - start) / iterations
        faults[variant] = (instruments.minor_faults() - faults_before) / iterations
        first_part = instruments.prefill_s()
        if first_part is not None:
            prefill[variant] = first_part / iterations
        instruments.look(variant, result)
        del result
    return Round(order=order, seconds=seconds, minor_faults=faults, prefill_s=prefill)


OLDEST = 2  # generation of the garbage collector


@contextmanager
def quiet_collector(*, thorough: bool = True) -> Iterator[Callable[[], object]]:
    """Turns garbage collection off; yields a function that collects between rounds.

    All living objects are frozen, so that a collection takes less than a millisecond and does not visit
    all objects of torch. ``thorough``: collect the oldest generation before, which takes some tenths of a
    second and is needed only if there may be garbage in it.
    """
    was_enabled = gc.isenabled()
    gc.collect(OLDEST if thorough else OLDEST - 1)
    gc.freeze()
    gc.disable()
    try:
        yield gc.collect
    finally:
        gc.unfreeze()
        if was_enabled:
            gc.enable()


LONG_ROUND_S = 0.1
MOST_MOVED = 0.1  # of the log ratio over three rounds of warm-up that all move one way


def has_settled(history: list[Round]) -> bool:
    """Whether warm-up may end: in the last round, no variant improved much over the round before.

    Page faults per step fall while the heap grows to the size that the steps need. The warm-up continues
    after a fall of more than 10 % (and 64 faults) from one round to the next, or of a time by more than
    25 %, or while the ratio to the baseline moves one way. There are at least three rounds, or two rounds
    of more than ``LONG_ROUND_S``.
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
    return not any(_moves(history, variant) for variant in last.seconds if variant != BASELINE)


def _moves(history: list[Round], variant: str) -> bool:
    """Whether the ratio to the baseline moves one way over three rounds, by more than a tenth in all."""
    if len(history) < 3 or BASELINE not in history[-1].seconds:
        return False
    logs = [math.log(r.seconds[BASELINE] / r.seconds[variant]) for r in history[-3:]]
    steps = logs[1] - logs[0], logs[2] - logs[1]
    return steps[0] * steps[1] > 0 and abs(logs[2] - logs[0]) > MOST_MOVED
