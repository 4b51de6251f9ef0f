"""The calls of a variant before it is timed, one by one: the first compiles, later ones settle."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

Result = TypeVar("Result")

FIRST_CALLS = 3  # calls that count as compilation: TorchScript specialises until its third


def timed(work: Callable[[], Result], synchronise: Callable[[], None]) -> tuple[float, Result]:
    """Seconds of one call, the device waited for before and after it, and what the call gave."""
    synchronise()
    start = time.perf_counter()
    result = work()
    synchronise()
    return time.perf_counter() - start, result


@contextmanager
def stopwatch(into: list[float]) -> Iterator[None]:
    """Appends the seconds of what runs inside; waiting for the device is up to that."""
    start = time.perf_counter()
    yield
    into.append(time.perf_counter() - start)


def seconds_of(step: Callable[[], object], calls: int, synchronise: Callable[[], None]) -> tuple[float, ...]:
    """Seconds of each of so many calls. What a call gave is gone before the next begins."""
    return tuple(timed(step, synchronise)[0] for _ in range(calls))
