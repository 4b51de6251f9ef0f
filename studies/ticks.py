"""Ticks with plain numbers for logarithmic axes of the studies' plots."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MOST = 8
IN_A_DECADE = ((1, 2, 3, 5), (1, 3), (1,))


def plain_ticks(panel: Axes, values: Sequence[float]) -> None:
    """Ticks for the positive ``values`` on the x axis. Those of matplotlib overlap within a decade."""
    from matplotlib.ticker import NullFormatter, NullLocator

    positive = [value for value in values if value > 0]
    if not positive:
        return
    low, high = min(positive) / 1.5, max(positive) * 1.5
    ticks = ticks_within(low, high)
    panel.set_xlim(low, high)
    panel.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    panel.xaxis.set_minor_locator(NullLocator())
    panel.xaxis.set_minor_formatter(NullFormatter())


def ticks_within(low: float, high: float) -> list[float]:
    """Round numbers from ``low`` to ``high``: as many as fit, but at most ``MOST`` if decades are enough."""
    choices = [
        [tick for power in range(-6, 7) for f in steps if low <= (tick := f * 10.0**power) <= high]
        for steps in IN_A_DECADE
    ]
    return next((ticks for ticks in choices if len(ticks) <= MOST), choices[-1])
