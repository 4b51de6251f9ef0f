"""A shared page of memory on which the worker writes its phase and variant.

The parent shows progress from it and, after a crash, reads which variant was running. A write takes a few
microseconds and wakes no other process.
"""

from __future__ import annotations

import json
import mmap
import os
from dataclasses import dataclass

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
