"""Standard output and error belong to the model's code. What it closes is reopened between calls."""

from __future__ import annotations

import contextlib
import fcntl
import io
import os
import sys

SPARE = 512  # high, because some code closes all low descriptors


class StandardStreams:
    """Copies of the present standard output and error, from which ``mend`` restores them."""

    def __init__(self) -> None:
        self._spares = [_spare(number) for number in (1, 2)]

    def mend(self) -> None:
        """Reopens closed descriptors, and replaces stream objects that are closed or not files."""
        for number, spare in zip((1, 2), self._spares, strict=True):
            try:
                os.fstat(number)
            except OSError:
                with contextlib.suppress(OSError):
                    os.dup2(spare, number)
        sys.stdout = _usable(sys.stdout, sys.__stdout__, 1)
        sys.stderr = _usable(sys.stderr, sys.__stderr__, 2)


def _spare(number: int) -> int:
    try:
        return fcntl.fcntl(number, fcntl.F_DUPFD_CLOEXEC, SPARE)
    except OSError:  # the limit of descriptors is below SPARE
        return os.dup(number)


def _usable(now: object, first: object, number: int) -> io.TextIOBase:
    for stream in (now, first):
        if isinstance(stream, io.TextIOBase) and not stream.closed:
            return stream
    return open(number, "w", buffering=1, encoding="utf-8", errors="replace", closefd=False)
