"""Whether the machine's free memory suffices for one more job beside those that are open."""

from __future__ import annotations

from collections.abc import Callable

LEAST_BYTES = 2e9  # for a job before any job was seen: torch, a model of 100 million parameters, a compiler
GROWTH = 2.0  # a job that is still preparing takes up to this many times the mean of the open jobs


def available_bytes() -> int:
    """The memory that the system can give to new processes without swapping."""
    import psutil  # imported here, so that --help does not need it

    return int(psutil.virtual_memory().available)


class FreeMemory:
    """Judges from the memory that the jobs of this run have taken so far. ``limit``: the most of a worker."""

    def __init__(self, limit: int | None = None, available: Callable[[], int] = available_bytes) -> None:
        self._limit = limit
        self._available = available
        self._at_start = available()
        self._most = 0.0  # bytes a job

    def suffices(self, opened: int) -> bool:
        """Whether one more job fits beside ``opened`` others.

        Jobs that have just begun hold less than they will take: each open job counts with ``_most`` at least.
        """
        free = self._available()
        self._at_start = max(self._at_start, free)
        self._most = max(self._most, (self._at_start - free) / max(1, opened))
        left = min(free, self._at_start - opened * max(LEAST_BYTES, self._most))
        return left >= (self._limit or max(LEAST_BYTES, GROWTH * self._most))
