"""Phase times of a worker: the seconds between its announcements, by phase and variant."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from harness.metrics import ByVariant
from harness.schema import WHOLE
from harness.worker.status_page import Activity

OF_ONE_VARIANT = ("compile", "check")
"""Phases of one candidate. The times of the other phases belong to the whole job."""


class PhaseTimes:
    """Passes announcements on and adds up the time between them.

    Time between calls, while the parent decides, is not counted.
    """

    def __init__(
        self, announce: Callable[[Activity], None], clock: Callable[[], float] = time.perf_counter
    ) -> None:
        self._pass_on = announce
        self._clock = clock
        self._spent: dict[tuple[str, str], float] = defaultdict(float)
        self._now: tuple[str, str] | None = None
        self._since = 0.0

    def announce(self, activity: Activity) -> None:
        of_one = activity.phase in OF_ONE_VARIANT
        self._change(("_".join(activity.phase.split()), activity.variant if of_one else WHOLE))
        self._pass_on(activity)

    @contextmanager
    def call(self) -> Iterator[None]:
        """A context for one call of the parent."""
        try:
            yield
        finally:
            self._change(None)

    def spent(self) -> ByVariant:
        """``spent_<phase>_s`` so far, by variant."""
        self._change(self._now)
        numbers: ByVariant = {}
        for (phase, variant), seconds in self._spent.items():
            numbers.setdefault(variant, {})[f"spent_{phase}_s"] = seconds
        return numbers

    def _change(self, to: tuple[str, str] | None) -> None:
        now = self._clock()
        if self._now is not None:
            self._spent[self._now] += now - self._since
        self._now, self._since = to, now
