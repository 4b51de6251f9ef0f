"""One shared page on which the worker says what it is doing.

Writing costs the worker a few microseconds and wakes nobody up, so the parent
can show progress and, after a crash, knows which variant was running.
"""

from __future__ import annotations

import json
import mmap
import os
from dataclasses import dataclass

SIZE = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class Activity:
    """What the worker is at: a phase, perhaps of a variant, and how many rounds it has done."""

    phase: str = "start"
    variant: str = ""
    rounds: int = 0


class StatusPage:
    """Both sides open the same file descriptor; one writes, the other reads."""

    def __init__(self, descriptor: int) -> None:
        if os.fstat(descriptor).st_size < SIZE:
            os.pwrite(descriptor, bytes(SIZE), 0)  # a page that a full disk has no room for fails here
        self._map = mmap.mmap(descriptor, SIZE)
        self._last = Activity()

    def write(self, activity: Activity) -> None:
        text = json.dumps([activity.phase, activity.variant, activity.rounds]).encode()[: SIZE - 1]
        self._map[: len(text) + 1] = text + b"\0"
        self._last = activity

    def read(self) -> Activity:
        """The last whole state; a page torn by a concurrent write gives the one before."""
        raw = bytes(self._map[:]).split(b"\0", 1)[0]
        try:
            phase, variant, rounds = json.loads(raw)
            self._last = Activity(phase=str(phase), variant=str(variant), rounds=int(rounds))
        except (ValueError, TypeError):
            pass
        return self._last

    def close(self) -> None:
        self._map.close()
