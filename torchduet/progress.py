"""The progress of ``compare()``: one line that changes."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TextIO

from harness.schema import Job, Record
from harness.worker.status_page import Activity
from runner.cli.progress import estimates
from runner.labels import case_name, plain

LONGEST_REASON = 160  # characters; the record has the full text
Pairs = Mapping[str, tuple[list[float], list[float]]]
QUIET_PHASES = ("measure", "warm up")
"""Phases with timed steps: the variant is not shown, because drawing would disturb them."""


Draw = Callable[[str, str], None]
"""Shows the first text in place of the one before. The second, if any, becomes a line that stays."""


def _on_a_terminal(stream: TextIO) -> Draw:
    """One line that is overwritten; cut to the width of the terminal."""
    width = 0

    def draw(text: str, lasting: str) -> None:
        nonlocal width
        text = text[: shutil.get_terminal_size().columns - 1]
        line = f"{lasting}\n" if lasting else ""
        before = "\r" if text and not lasting else f"\r{' ' * width}\r"
        stream.write(f"{before}{line}{text.ljust(width) if text else ''}")
        stream.flush()
        width = len(text)

    return draw


def _in_lines(stream: TextIO) -> Draw:
    """Only lines that stay, for logs and pipes."""

    def draw(_: str, lasting: str) -> None:
        if lasting:
            stream.write(f"{lasting}\n")
            stream.flush()

    return draw


def _in_a_notebook(display: Any) -> Draw:
    """One output of the cell, which changes. Lines that stay are above the changing text."""
    lines: list[str] = []
    handle = display({"text/plain": ""}, raw=True, display_id=True)

    def draw(text: str, lasting: str) -> None:
        lines.extend([lasting] if lasting else [])
        handle.update({"text/plain": "\n".join([*lines, *([text] if text else [])])}, raw=True)

    return draw


class Progress:
    """Receives the progress of a job; shows phases, estimates and each candidate's outcome."""

    def __init__(self, title: str, draw: Draw) -> None:
        self._title = title
        self._draw = draw
        self._shown = ""

    def activity(self, activity: Activity) -> None:
        what = activity.phase
        if activity.phase not in QUIET_PHASES and activity.variant:
            what = f"{activity.phase} {activity.variant}"
        self._show(what)

    def rounds(self, done: int, pairs: Pairs) -> None:
        self._show(f"round {done}  {estimates(pairs)}")

    def ended(self, record: Record) -> None:
        self._draw("", plain(outcome(record)))

    def _show(self, what: str) -> None:
        if what != self._shown:
            self._shown = what
            self._draw(plain(f"{self._title}: {what}"), "")


def title(job: Job) -> str:
    """``Sequential (training, float32, cpu)``"""
    return f"{case_name(job.case)} ({job.case.mode.value}, {job.dtype}, {job.device})"


def outcome(record: Record) -> str:
    """``inductor: pass, 30 rounds``; for a failure, with its reason."""
    rounds = f", {len(record.samples)} rounds" if record.samples else ""
    failure = record.failure
    if failure is None:
        return f"{record.candidate}: {record.status.value}{rounds}"
    why = f" in phase {failure.phase}: {failure.kind}: {failure.message[:LONGEST_REASON]}"
    return f"{record.candidate}: {record.status.value}{rounds}{why}"


@contextmanager
def shown(job: Job, asked: bool | None) -> Iterator[Progress]:
    """Progress of one job. ``asked=None``: only in a notebook and on a terminal."""
    with _drawing(asked) as draw:
        try:
            yield Progress(title(job), draw)
        finally:
            draw("", "")


@contextmanager
def _drawing(asked: bool | None) -> Iterator[Draw]:
    display = _notebook()
    if asked is False or not (asked or display or sys.stderr.isatty()):
        yield lambda _text, _lasting: None
    elif display:
        yield _in_a_notebook(display)
    elif sys.stderr.isatty():
        with _apart(sys.stderr) as stream:
            yield _on_a_terminal(stream)
    else:
        yield _in_lines(sys.stderr)


@contextmanager
def _apart(stream: TextIO) -> Iterator[TextIO]:
    """A copy of the stream that still writes to the terminal while standard error is redirected."""
    try:
        number = os.dup(stream.fileno())
    except (OSError, ValueError):  # the stream is not a file
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
