"""Times the calls of a variant before the rounds: the first call compiles, later calls settle."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

Result = TypeVar("Result")

FIRST_CALLS = 3  # calls that count as compilation: TorchScript specializes until the third


def timed(work: Callable[[], Result], synchronize: Callable[[], None]) -> tuple[float, Result]:
    """Seconds and result of one call. The device is synchronized before and after it."""
    synchronize()
    start = time.perf_counter()
    result = work()
    synchronize()
    return time.perf_counter() - start, result


@contextmanager
def stopwatch(into: list[float]) -> Iterator[None]:
    """Appends the seconds of the code inside, which must synchronize the device itself."""
    start = time.perf_counter()
    yield
    into.append(time.perf_counter() - start)
