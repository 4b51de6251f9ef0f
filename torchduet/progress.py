"""The progress of ``compare()``: one line that changes."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator, Mapping
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


class Line:
    """``show`` replaces the changing line, ``lasting`` adds a line that stays. This one shows nothing."""

    def show(self, text: str) -> None: ...

    def lasting(self, text: str) -> None: ...

    def end(self) -> None: ...


class TerminalLine(Line):
    """One line that is overwritten; cut to the width of the terminal."""

    def __init__(self, stream: TextIO) -> None:
        self._given = stream
        self._stream = _apart(stream)
        self._width = 0

    def show(self, text: str) -> None:
        text = text[: shutil.get_terminal_size().columns - 1]
        self._stream.write(f"\r{text.ljust(self._width)}")
        self._stream.flush()
        self._width = len(text)

    def lasting(self, text: str) -> None:
        self._clear()
        self._stream.write(f"{text}\n")

    def end(self) -> None:
        self._clear()
        if self._stream is not self._given:
            self._stream.close()

    def _clear(self) -> None:
        self.show("")
        self._stream.write("\r")
        self._stream.flush()


class PlainLines(Line):
    """Prints only lasting lines, for logs and pipes."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def lasting(self, text: str) -> None:
        self._stream.write(f"{text}\n")
        self._stream.flush()


class NotebookLine(Line):
    """One output of the cell, which changes. Lasting lines are above the changing line."""

    def __init__(self, display: Any) -> None:
        self._kept: list[str] = []
        self._handle = display({"text/plain": ""}, raw=True, display_id=True)

    def show(self, text: str) -> None:
        shown = "\n".join([*self._kept, *([text] if text else [])])
        self._handle.update({"text/plain": shown}, raw=True)

    def lasting(self, text: str) -> None:
        self._kept.append(text)
        self.show("")

    def end(self) -> None:
        self.show("")


class Progress:
    """Receives the progress of a job; shows phases, estimates and each candidate's outcome."""

    def __init__(self, title: str, line: Line) -> None:
        self._title = title
        self._line = line
        self._shown = ""

    def activity(self, activity: Activity) -> None:
        what = activity.phase
        if activity.phase not in QUIET_PHASES and activity.variant:
            what = f"{activity.phase} {activity.variant}"
        self._show(what)

    def rounds(self, done: int, pairs: Pairs) -> None:
        self._show(f"round {done}  {estimates(pairs)}")

    def ended(self, record: Record) -> None:
        self._line.lasting(plain(outcome(record)))

    def _show(self, what: str) -> None:
        if what != self._shown:
            self._shown = what
            self._line.show(plain(f"{self._title}: {what}"))


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
    line = _line(asked)
    try:
        yield Progress(title(job), line)
    finally:
        line.end()


def _line(asked: bool | None) -> Line:
    if asked is False:
        return Line()
    display = _notebook()
    if display is not None:
        return NotebookLine(display)
    if sys.stderr.isatty():
        return TerminalLine(sys.stderr)
    return PlainLines(sys.stderr) if asked else Line()


def _apart(stream: TextIO) -> TextIO:
    """A copy of the stream that still writes to the terminal while standard error is redirected."""
    try:
        return os.fdopen(os.dup(stream.fileno()), "w", encoding=stream.encoding, errors="replace")
    except (OSError, ValueError):  # the stream is not a file
        return stream


def _notebook() -> Any:
    """IPython's ``display`` in a notebook's kernel, else None. Does not import IPython."""
    python = sys.modules.get("IPython")
    shell = python.get_ipython() if python is not None else None
    if python is None or shell is None or getattr(shell, "kernel", None) is None:
        return None
    return python.display.display
