"""The progress of ``compare()``, as the command line shows it, or as the output of a notebook's cell."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TextIO

from rich.console import Console

from harness.schema import Job
from harness.worker.status_page import Activity
from runner.cli.progress import NotebookView, View, view
from runner.engine.executors import Doing, Event

QUIET_PHASES = ("measure", "warm up")
"""Phases with timed steps, which drawing would disturb."""


class Unseen:
    def event(self, event: Event) -> None:
        pass


@contextmanager
def shown(wanted: bool | None) -> Iterator[View]:
    """``wanted=None``: only in a notebook and on a terminal."""
    display = _notebook()
    if wanted is False or not (wanted or display or getattr(sys.stderr, "isatty", bool)()):
        yield Unseen()
    elif display:
        yield NotebookView(display)
    else:
        with _apart(sys.stderr) as stream, view(Console(file=stream), 1, here=True) as seen:
            yield seen


def tell(job: Job, seen: View, activity: Activity) -> None:
    """Passes on what happens between timed steps."""
    if activity.phase not in QUIET_PHASES:
        seen.event(Doing(job=job, activity=activity))


@contextmanager
def _apart(stream: TextIO) -> Iterator[TextIO]:
    """A copy of the stream that still writes to the terminal while standard error is redirected."""
    try:
        number = os.dup(stream.fileno())
    except (AttributeError, OSError, ValueError):  # the stream is not a file, or there is none
        yield stream
        return
    with os.fdopen(number, "w", encoding=stream.encoding, errors="replace") as copy:
        yield copy


def _notebook() -> Any:
    """IPython's ``display`` in a notebook's kernel, else None. Does not import IPython."""
    python = sys.modules.get("IPython")
    shell = python.get_ipython() if python is not None else None
    if python is None or shell is None or getattr(shell, "kernel", None) is None:
        return None
    return python.display.display
