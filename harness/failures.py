"""Turning exceptions into the record's words. A model may raise its own: nothing about them is sure."""

from __future__ import annotations

import contextlib
import sys
import traceback

import torch

from harness.schema import Failure

WORDS = ("out of memory", "can't allocate memory")
LONGEST = 600  # characters of a message that go into a record; the log has them all


def is_out_of_memory(error: BaseException) -> bool:
    """Whether the device or the host had no memory left, here or in what this was raised from."""
    seen: set[int] = set()
    link: BaseException | None = error
    while link is not None and id(link) not in seen:
        if isinstance(link, (MemoryError, torch.cuda.OutOfMemoryError)):
            return True
        if isinstance(link, RuntimeError) and any(words in words_of(link).lower() for words in WORDS):
            return True
        seen.add(id(link))
        link = link.__cause__
    return False


def describe_failure(error: BaseException, phase: str) -> Failure:
    """The exception as a ``Failure``; long messages are cut, the whole one is in the log."""
    # a lone surrogate, as in an undecodable file name, could not be written to the record
    plain = "".join(c if c.isprintable() or c.isspace() else "?" for c in words_of(error)[: 10 * LONGEST])
    return Failure(kind=type(error).__name__, message=" ".join(plain.split())[:LONGEST], phase=phase)


def words_of(error: BaseException) -> str:
    """What the exception says, even if it cannot say it."""
    if isinstance(error, SystemExit) and not isinstance(error.code, str):
        return f"sys.exit({error.code if isinstance(error.code, int) else ''}) was called"
    try:
        return str(error)
    except Exception as broken:
        return f"(this exception's message cannot be had: {type(broken).__name__})"


def log_traceback() -> None:
    """Writes the current exception with its traceback to standard error, if there still is one."""
    for stream in (sys.stderr, sys.__stderr__):
        with contextlib.suppress(Exception):
            traceback.print_exc(file=stream)
            return
