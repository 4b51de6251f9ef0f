"""What the worker does now: on a shared page of memory, with its phase and variant, and its time by phase.

The parent shows progress from it and, after a crash, reads which variant was running. A write takes a few
microseconds and wakes no other process.
"""

from __future__ import annotations

import json
import mmap
import os
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from harness.schema import WHOLE, Scalar

SIZE = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class Activity:
    """The worker's phase, its variant ("" if the phase has none), and the number of rounds done."""

    phase: str = "start"
    variant: str = ""
    rounds: int = 0


class StatusPage:
    """Worker and parent open the same file descriptor; the worker writes, the parent reads.

    Only the worker maps the file: whoever maps a file that a model makes shorter is killed by SIGBUS.
    """

    def __init__(self, descriptor: int) -> None:
        if os.fstat(descriptor).st_size < SIZE:
            os.pwrite(descriptor, bytes(SIZE), 0)  # on a full disk, fails here and not at a later write
        self._descriptor = descriptor
        self._map: mmap.mmap | None = None
        self._last = Activity()

    def write(self, activity: Activity) -> None:
        if self._map is None:
            self._map = mmap.mmap(self._descriptor, SIZE)
        text = json.dumps([activity.phase, activity.variant, activity.rounds]).encode()[: SIZE - 1]
        self._map[: len(text) + 1] = text + b"\0"

    def read(self) -> Activity:
        """The present state. If the page is not valid, or a write is under way, the state before it."""
        try:
            raw = os.pread(self._descriptor, SIZE, 0).split(b"\0", 1)[0]
            phase, variant, rounds = json.loads(raw)
            self._last = Activity(phase=str(phase), variant=str(variant), rounds=int(rounds))
        except (ValueError, TypeError, RecursionError, OverflowError, OSError):
            pass
        return self._last


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

    def spent(self) -> dict[str, dict[str, Scalar]]:
        """``spent_<phase>_s`` so far, by variant."""
        self._change(self._now)
        numbers: dict[str, dict[str, Scalar]] = {}
        for (phase, variant), seconds in self._spent.items():
            numbers.setdefault(variant, {})[f"spent_{phase}_s"] = seconds
        return numbers

    def _change(self, to: tuple[str, str] | None) -> None:
        now = self._clock()
        if self._now is not None:
            self._spent[self._now] += now - self._since
        self._now, self._since = to, now
