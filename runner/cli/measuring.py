"""Measures jobs into a run folder and writes the report. Slow to import."""

from __future__ import annotations

import gc
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path

from rich.console import Console

from harness.schema import Job, Record
from runner.analysis.derive import summarize
from runner.analysis.results import Summary
from runner.analysis.verdicts.parity import is_plain_pass
from runner.cli.commands import job_command
from runner.cli.exit_codes import BAD_INPUT, FAILURES, INTERRUPTED, OK
from runner.cli.formats import CONSOLE, Formats
from runner.cli.progress import view
from runner.cli.streams import STANDARD_OUTPUT, output_fails, tell
from runner.engine.executors import Executor, Work
from runner.engine.executors.ahead import crowded
from runner.engine.executors.local import LocalExecutor
from runner.engine.processes import PROCESS_FILES
from runner.errors import UsageError
from runner.labels import counted
from runner.plan.config import Where
from runner.reports import render_all
from runner.reports.console import print_answer, print_report
from runner.reports.parts.grid import say
from runner.store.figures import read_figures
from runner.store.record_file import whole
from runner.store.run_folder import RunFolder

PAGE = "report.html"
SHORT_RUN = 12  # records: of these, also passes have a picture of parity


def measure(
    folder: RunFolder, jobs: Sequence[Job], console: Console, executor: Executor, formats: Formats
) -> int:
    """Measures the missing jobs and reports. Returns the exit code."""
    with _kept(folder):
        stopped = measure_missing(folder, jobs, console, executor)
        if stopped and not folder.read().records:
            say(console, f"Stopped: nothing was measured yet; {folder.how_to_go_on()}")
            return INTERRUPTED
        unfinished = f"Stopped early; {folder.how_to_go_on()}" if stopped else ""
        code = report(folder, console, formats, unfinished)
    return INTERRUPTED if stopped else code


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
        if not error.filename and output_fails():
            error.filename = STANDARD_OUTPUT
        raise folder.unwritable(error) from None
    except KeyboardInterrupt:
        tell(folder.how_to_go_on())
        raise


@contextmanager
def opened(where: Where, jobs: Sequence[Job]) -> Iterator[Executor]:
    """The executor that ``--executor`` names. Raises ``UsageError`` if it cannot run these jobs."""
    if where.executor == "ray":
        from runner.engine.executors.ray_cluster import connected

        with connected(where.ray_address, jobs, job_command) as cluster:
            yield cluster
        return
    if note := crowded(jobs, where.prepare_ahead or 1):
        print(f"note: {note}", file=sys.stderr)
    yield LocalExecutor(job_command, fork=where.fork_server, ahead=where.prepare_ahead)


def measured_into(
    path: Path, jobs: Sequence[Job], argv: Sequence[str], console: Console, where: Where
) -> Sequence[Record]:
    """The records of these jobs, measured into a new folder. ``KeyboardInterrupt`` if the user stops."""
    with opened(where, jobs) as executor:
        folder = RunFolder.create(path, jobs, argv)
        with folder.claimed():
            if measure_missing(folder, jobs, console, executor):
                raise KeyboardInterrupt
    return folder.read().records


def measure_missing(folder: RunFolder, jobs: Sequence[Job], console: Console, executor: Executor) -> bool:
    """Measures the jobs without a whole record. Returns True if the user stopped the run early."""
    done = whole(folder.read().records)
    left = ((job, tuple(c for c in job.candidates if (job.key, c) not in done)) for job in jobs)
    missing = [Work(job=job, candidates=candidates) for job, candidates in left if candidates]
    say(console, f"{counted(len(missing), 'job')} -> {folder.path}")
    with _interrupts() as stop, view(console, len(missing)) as seen:
        # closing ends the workers, also after an error in this loop
        with closing(executor.run(missing, folder, stop)) as events:
            for event in events:
                if isinstance(event, Record):
                    folder.append(event)
                seen.event(event)
        for path in () if stop() else folder.path.glob(f"cases/*/{PROCESS_FILES}"):
            path.unlink()
        return stop()


def report(folder: RunFolder, console: Console, formats: Formats = None, unfinished: str = "") -> int:
    """What is derived from ``records.jsonl``, to the folder and the console; the exit code.

    ``formats``: only these; None: all. ``unfinished``: a sentence before the answer. Garbage collection is
    off meanwhile: among millions of objects that stay there is nothing to collect.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        return _report(folder, console, formats, unfinished)
    finally:
        if enabled:
            gc.enable()


def _report(folder: RunFolder, console: Console, formats: Formats, unfinished: str) -> int:
    try:
        content = folder.read()
    except OSError as error:
        raise UsageError(f"{folder.records_path} cannot be read ({error.strerror})") from None
    for sentence in content.damage:
        print(f"error: {sentence}", file=sys.stderr)
    if content.replaced:
        print(f"note: {content.replaced}", file=sys.stderr)
    if not content.records:
        print(f"error: {folder.records_path} holds no record", file=sys.stderr)
        return BAD_INPUT
    short = len(content.records) <= SHORT_RUN
    drawn = [record for record in content.records if short or not is_plain_pass(record)]
    summary = replace(summarize(content.records), figures=read_figures(folder.path, drawn))
    _show(summary, folder, console, formats, unfinished)
    if content.damage:
        return BAD_INPUT
    fine = all(record.status.passed or not record.status.counted for record in content.records)
    return OK if fine else FAILURES


def _show(summary: Summary, folder: RunFolder, console: Console, formats: Formats, unfinished: str) -> None:
    """Writes the files and prints the report, which ends with the answer and the path of report.html."""
    files = render_all(summary, formats)
    printed = formats is None or CONSOLE in formats
    try:
        folder.write_derived(files)
    except UsageError:  # a full disk does not hide the numbers
        print_report(summary, console)
        raise
    if printed:
        print_report(summary, console)
    if traces := len([*folder.path.glob("cases/*/trace-*.json")]):
        say(console, f"{counted(traces, 'trace')} for ui.perfetto.dev: {folder.path}/cases/*/trace-*.json")
    if unfinished:
        say(console, unfinished)
    if printed:
        print_answer(summary, console)
    say(console, f"Report: {folder.path / PAGE}" if PAGE in files else f"Files: {folder.path}")


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
