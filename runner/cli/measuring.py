"""Measures jobs into a run folder and writes the report. Slow to import."""

from __future__ import annotations

import gc
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager

from rich.console import Console

from harness.schema import Job, Record
from runner.analysis.derive import summarize
from runner.cli.exit_codes import BAD_INPUT, FAILURES, INTERRUPTED, OK
from runner.cli.formats import printed
from runner.cli.progress import view
from runner.engine.executors import Executor, Work
from runner.errors import UsageError
from runner.labels import counted
from runner.reports import render_all
from runner.reports.console import print_report
from runner.runs.history.enter import enter
from runner.store.run_folder import RunFolder


def measure(
    folder: RunFolder,
    jobs: Sequence[Job],
    console: Console,
    executor: Executor,
    formats: frozenset[str] | None,
) -> int:
    """Measures the missing jobs, reports, and adds the run to the index of runs. Returns the exit code."""
    with _kept(folder):
        stopped = measure_missing(folder, jobs, console, executor)
        if stopped and not folder.read().records:
            sentence = f"Stopped: nothing was measured yet; {folder.how_to_go_on()}"
            console.print(sentence, markup=False, highlight=False, soft_wrap=True)
            return INTERRUPTED
        code = report(folder, console, formats)
        enter(folder.path)
        left = 0 if stopped else len(_without_records(folder, jobs))
    if left:
        of_all = f"{left} of {counted(len(jobs), 'job')}"
        sentence = f"The time budget ended before {of_all}; {folder.how_to_go_on()}"
        console.print(sentence, markup=False, highlight=False, soft_wrap=True)
    if stopped:
        console.print(
            f"Stopped early; {folder.how_to_go_on()}", markup=False, highlight=False, soft_wrap=True
        )
        return INTERRUPTED
    return code


@contextmanager
def _kept(folder: RunFolder) -> Iterator[None]:
    """Locks the folder. If the run ends early, a message says how to continue it."""
    try:
        with folder.claimed() as torn:
            if torn:
                print(f"note: {torn}", file=sys.stderr)
            yield
    except BrokenPipeError:
        raise  # the reader of the output closed the pipe; the folder is fine
    except OSError as error:
        raise folder.unwritable(error) from None
    except KeyboardInterrupt:
        print(folder.how_to_go_on(), file=sys.stderr)
        raise


def measure_missing(folder: RunFolder, jobs: Sequence[Job], console: Console, executor: Executor) -> bool:
    """Measures the jobs without a record. Returns True if the user stopped the run early."""
    missing = _without_records(folder, jobs)
    heading = f"{counted(len(missing), 'job')} -> {folder.path}"
    console.print(heading, markup=False, highlight=False, soft_wrap=True)
    with _interrupts() as stop, view(console, missing) as seen:
        # closing ends the workers, also after an error in this loop
        with closing(executor.run(missing, folder, stop)) as events:
            for event in events:
                if isinstance(event, Record):
                    folder.append(event)
                seen.event(event)
        return stop()


def _without_records(folder: RunFolder, jobs: Sequence[Job]) -> list[Work]:
    """The jobs and candidates without a record."""
    done = {(r.job.key, r.candidate) for r in folder.read().records}
    return [Work(job=job, candidates=rest) for job in jobs if (rest := _missing(job, done))]


def _missing(job: Job, done: set[tuple[str, str]]) -> tuple[str, ...]:
    return tuple(candidate for candidate in job.candidates if (job.key, candidate) not in done)


def report(folder: RunFolder, console: Console, formats: frozenset[str] | None = None) -> int:
    """What is derived from ``records.jsonl``, to the folder and the console; the exit code.

    ``formats``: only these; None: all. Garbage collection is off meanwhile: among millions of objects
    that stay there is nothing to collect.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        return _report(folder, console, formats)
    finally:
        if enabled:
            gc.enable()


def _report(folder: RunFolder, console: Console, formats: frozenset[str] | None) -> int:
    try:
        found = folder.read()
    except OSError as error:
        raise UsageError(f"{folder.records_path} cannot be read ({error.strerror})") from None
    for sentence in found.damage:
        print(f"error: {sentence}", file=sys.stderr)
    if found.records:
        summary = summarize(found.records)
        try:
            folder.write_derived(render_all(summary, formats))
        except UsageError:  # a full disk does not hide the numbers
            print_report(summary, console)
            raise
        if printed(formats):
            print_report(summary, console)
        console.print(f"Files: {folder.path}", markup=False, highlight=False, soft_wrap=True)
    else:
        print(f"error: {folder.records_path} holds no record", file=sys.stderr)
        return BAD_INPUT
    if found.damage:
        return BAD_INPUT
    fine = all(record.status.passed or not record.status.counted for record in found.records)
    return OK if fine else FAILURES


@contextmanager
def _interrupts() -> Iterator[Callable[[], bool]]:
    """Ctrl-C once: ``stop()`` becomes true and the current rounds end. Twice: at once."""
    pressed: list[int] = []

    def on_signal(number: int, frame: object) -> None:
        if pressed:
            raise KeyboardInterrupt
        pressed.append(number)
        print("stopping after the current rounds; press Ctrl-C again to stop at once", file=sys.stderr)

    previous = signal.signal(signal.SIGINT, on_signal)
    try:
        yield lambda: bool(pressed)
    finally:
        signal.signal(signal.SIGINT, previous)
