"""Standard output and error belong to the model's code; what it breaks is mended between calls."""

from __future__ import annotations

import contextlib
import fcntl
import io
import os
import sys

SPARE = 512  # out of the way of code that closes or counts low descriptors


class StandardStreams:
    """Output, error and their Python objects as they are now, for ``mend`` to put back."""

    def __init__(self) -> None:
        self._spares = [_spare(number) for number in (1, 2)]

    def mend(self) -> None:
        """Opens what was closed, and replaces objects that were closed, or are no files any more."""
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
    except OSError:  # few descriptors are allowed here
        return os.dup(number)


def _usable(now: object, first: object, number: int) -> io.TextIOBase:
    for stream in (now, first):
        if isinstance(stream, io.TextIOBase) and not stream.closed:
            return stream
    return open(number, "w", buffering=1, encoding="utf-8", errors="replace", closefd=False)
