"""What a person sees while a run goes on: a bar on a terminal, a line a job elsewhere."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Protocol

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from harness.schema import Job, Record, Status
from harness.status_page import Activity

Pairs = Mapping[str, tuple[list[float], list[float]]]


class View(Protocol):
    """Told about everything that happens in a run, as it happens."""

    def job_started(self, job: Job) -> None: ...

    def activity(self, activity: Activity) -> None: ...

    def rounds(self, done: int, pairs: Pairs) -> None: ...

    def record(self, record: Record) -> None: ...

    def job_ended(self) -> None: ...


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
        self._job = ""
        self._estimate = ""

    def job_started(self, job: Job) -> None:
        self._job = f"{job.case.name} {job.dtype}"
        self._estimate = ""
        self._show("start")

    def activity(self, activity: Activity) -> None:
        phase = f"{activity.phase} {activity.variant}".strip()
        if activity.phase == "measure":
            phase = f"round {activity.rounds}"
        self._show(phase)

    def rounds(self, done: int, pairs: Pairs) -> None:
        self._estimate = estimates(pairs)
        self._show(f"round {done}")

    def record(self, record: Record) -> None:
        if not record.status.passed and record.status is not Status.SKIP:
            line = f"{record.job.case.name}: {record.candidate} ended as {record.status.value}"
            self._progress.console.print(escape(line), style="yellow")

    def job_ended(self) -> None:
        self._ended += 1
        left = (time.monotonic() - self._began) / self._ended * (self._jobs - self._ended)
        self._progress.update(self._task, advance=1, left=f"about {duration(left)} left")

    def _show(self, phase: str) -> None:
        text = "  ".join(part for part in (self._job, phase, self._estimate) if part)
        self._progress.update(self._task, description=escape(text))


class PlainView:
    """A line when a job starts and one for each record: for logs and pipes."""

    def __init__(self, console: Console, jobs: int) -> None:
        self._console = console
        self._jobs = jobs
        self._started = 0

    def job_started(self, job: Job) -> None:
        self._started += 1
        self._print(f"[{self._started}/{self._jobs}] {job.case.name} {job.dtype} {job.device}")

    def activity(self, activity: Activity) -> None:
        pass

    def rounds(self, done: int, pairs: Pairs) -> None:
        pass

    def record(self, record: Record) -> None:
        rounds = f", {len(record.samples)} rounds" if record.samples else ""
        self._print(f"    {record.candidate}: {record.status.value}{rounds}")

    def job_ended(self) -> None:
        pass

    def _print(self, line: str) -> None:
        self._console.print(line, markup=False, highlight=False, soft_wrap=True)


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
