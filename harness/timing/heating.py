"""Load before the warm-up: a GPU's clock and power settle seconds after its load begins.

A GPU that was idle while a compiler worked begins at its highest clock, and lowers it when its power limit
acts. Without load before them, the timed rounds would show a cold card.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

LEAST_S, MOST_S = 1.0, 10.0
EVERY_S = 0.1  # of each variant in a turn
LOOKS = 4  # readings that must agree, one after each turn
SPREAD = 0.03  # of clock and power, largest to smallest

Reading = tuple[float, float]
"""The clock (MHz) and the power (W)."""


def heat(
    steps: Mapping[str, Callable[[], object]],
    synchronize: Callable[[], None],
    read: Callable[[], Reading] | None,
    announce: Callable[[str], None],
) -> float:
    """Runs the variants in turn until clock and power have settled. Returns the seconds that it took.

    ``read`` None: there are no readings, and the load lasts ``LEAST_S``.
    """
    began, readings = time.perf_counter(), list[Reading]()
    while True:
        for name, step in steps.items():
            announce(name)
            start = time.perf_counter()
            while time.perf_counter() - start < EVERY_S:
                step()
                synchronize()
        if read is not None:
            readings.append(read())
        spent_s = time.perf_counter() - began
        enough = spent_s >= LEAST_S and (read is None or _settled(readings))
        if enough or spent_s >= MOST_S:
            return spent_s


def _settled(readings: list[Reading]) -> bool:
    last = readings[-LOOKS:]
    return len(last) == LOOKS and all(
        max(values) - min(values) <= SPREAD * max(values) for values in zip(*last, strict=True)
    )
