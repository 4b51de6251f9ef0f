"""Signals that end the program: Ctrl-C, SIGTERM, SIGHUP and SIGQUIT. Imports nothing slow."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType

ENDING = (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)


def end_quietly_while_importing() -> None:
    """Until ``ended_by`` begins, Ctrl-C ends the program with one word instead of a traceback."""
    if signal.getsignal(signal.SIGINT) in (signal.default_int_handler, signal.SIG_IGN):
        signal.signal(signal.SIGINT, _end_now)


def _end_now(number: int, _: FrameType | None) -> None:
    os.write(2, b"stopped\n")
    os._exit(128 + number)


@contextmanager
def ended_by() -> Iterator[list[int]]:
    """The number of the signal that ends the program, if one does. Each raises ``KeyboardInterrupt`` once.

    The exception lets every part of the program clean up, as after Ctrl-C. A shell's script ignores SIGINT
    and SIGQUIT for a program in the background: one that is sent ends it all the same. SIGHUP stays ignored
    (``nohup``).
    """
    received: list[int] = []

    def end(number: int, _: FrameType | None) -> None:
        if not received:
            received.append(number)
            raise KeyboardInterrupt

    previous = {number: signal.getsignal(number) for number in (signal.SIGINT, *ENDING)}
    with suppress(ValueError):  # a thread cannot set handlers
        if previous[signal.SIGINT] in (_end_now, signal.SIG_IGN):
            signal.signal(signal.SIGINT, signal.default_int_handler)
        for number in ENDING:
            if previous[number] is signal.SIG_DFL or number != signal.SIGHUP:
                signal.signal(number, end)
    try:
        yield received
    finally:
        with suppress(ValueError):
            for number, handler in previous.items():
                signal.signal(number, handler)
