"""Standard input, output and error, which the caller may have closed, and which may take nothing more."""

from __future__ import annotations

import contextlib
import io
import os
import sys

STANDARD_OUTPUT = "standard output"


def prepare_streams() -> None:
    """Opens the streams that the caller closed (``>&-``), or files of a run would take their numbers.

    Characters that the terminal's encoding does not have are printed as escapes.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            descriptor = os.open(os.devnull, os.O_RDWR)  # the lowest free number
            os.set_inheritable(descriptor, True)
            setattr(sys, name, os.fdopen(descriptor, mode, encoding="utf-8"))
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def output_fails() -> bool:
    """Whether standard output takes nothing more: its disk is full, or its terminal is gone."""
    try:
        print(flush=True)
    except OSError:
        return True
    return False


def tell(sentence: str) -> None:
    """Prints to standard error, if it is still there."""
    with contextlib.suppress(OSError):
        print(sentence, file=sys.stderr)


def forget_unprinted() -> None:
    """Prevents a second attempt to print, and its error, when the interpreter ends."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):
            with contextlib.suppress(OSError, ValueError):
                os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
