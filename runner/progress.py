"""What a person sees while a run goes on: a bar on a terminal, a line a job elsewhere."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from harness.schema import Job, Record, Status
from runner.executors import Doing, Ended, Event, Pairs, Started
from runner.labels import plain

SHOWN_TOGETHER = 3  # jobs under way that fit into a line


class View(Protocol):
    """Told about everything that happens in a run, as it happens. Several jobs may be under way."""

    def event(self, event: Event) -> None: ...


@contextmanager
def view(console: Console, jobs: int) -> Iterator[View]:
    """The view that suits the console, for a run of that many jobs."""
    if not console.is_terminal:
        yield PlainView(console, jobs)
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=24),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.fields[left]}"),
    )
    # few refreshes: drawing costs processor time that the worker is being measured on
    with Progress(*columns, console=console, refresh_per_second=2, transient=True) as progress:
        yield BarView(progress, jobs)


class BarView:
    """A bar over the jobs, with job, phase, rounds so far, current estimate and time left."""

    def __init__(self, progress: Progress, jobs: int) -> None:
        self._progress = progress
        self._task = progress.add_task("planning", total=jobs, left="")
        self._jobs = jobs
        self._ended = 0
        self._began = time.monotonic()
        self._phases: dict[str, str] = {}  # of the jobs under way
        self._estimates: dict[str, str] = {}

    def event(self, event: Event) -> None:
        if isinstance(event, Record):
            self._record(event)
            return
        key = event.job.key
        if isinstance(event, Ended):
            self._phases.pop(key, None)
            self._estimates.pop(key, None)
            self._ended += 1
            left = (time.monotonic() - self._began) / self._ended * (self._jobs - self._ended)
            self._progress.update(self._task, advance=1, left=f"about {duration(left)} left")
            return
        if isinstance(event, Started):
            phase = "start"
        elif isinstance(event, Doing):
            phase = f"{event.activity.phase} {event.activity.variant}".strip()
            if event.activity.phase == "measure":
                phase = f"round {event.activity.rounds}"
        else:
            phase = f"round {event.done}"
            self._estimates[key] = estimates(event.pairs)
        self._phases[key] = f"{event.job.case.name} {event.job.dtype}  {phase}"
        self._progress.update(self._task, description=escape(plain(self._text())))

    def _text(self) -> str:
        """The one job under way with its estimates; of several the first few, without."""
        if len(self._phases) == 1:
            return "  ".join(part for part in (*self._phases.values(), *self._estimates.values()) if part)
        shown = list(self._phases.values())[:SHOWN_TOGETHER]
        more = len(self._phases) - len(shown)
        return " | ".join([*shown, f"{more} more"] if more else shown)

    def _record(self, record: Record) -> None:
        if not record.status.passed and record.status is not Status.SKIP:
            line = f"{record.job.case.name}: {record.candidate} ended as {record.status.value}"
            self._progress.console.print(escape(plain(line)), style="yellow")


class PlainView:
    """A line when a job starts and one for each record: for logs and pipes."""

    def __init__(self, console: Console, jobs: int) -> None:
        self._console = console
        self._jobs = jobs
        self._started = 0
        self._under_way: set[str] = set()

    def event(self, event: Event) -> None:
        if isinstance(event, Started):
            self._started += 1
            self._under_way.add(event.job.key)
            self._print(f"[{self._started}/{self._jobs}] {_title(event.job)}")
        elif isinstance(event, Ended):
            self._under_way.discard(event.job.key)
        elif isinstance(event, Record):
            # of several jobs under way, which one is it?
            whose = f"{_title(event.job)}  " if len(self._under_way) > 1 else ""
            rounds = f", {len(event.samples)} rounds" if event.samples else ""
            self._print(f"    {whose}{event.candidate}: {event.status.value}{rounds}")

    def _print(self, line: str) -> None:
        self._console.print(plain(line), markup=False, highlight=False, soft_wrap=True)


def _title(job: Job) -> str:
    return f"{job.case.name} {job.dtype} {job.device}"


def estimates(pairs: Pairs) -> str:
    """``inductor 1.31x  torchscript 1.02x``: the current estimates, for the progress line only."""
    from runner.statistics import paired_speedup

    parts: Sequence[str] = [
        f"{candidate} {paired_speedup(baseline, times).speedup:.2f}x"
        for candidate, (baseline, times) in pairs.items()
        if baseline
    ]
    return "  ".join(parts)


def duration(seconds: float) -> str:
    """``45 s``, ``3 min``, ``1 h 20 min``"""
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"
