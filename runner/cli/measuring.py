"""Measures jobs into a run folder and writes the report. Slow to import."""

from __future__ import annotations

import gc
import math
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from functools import partial

from rich.console import Console

from harness.schema import Job, Record
from runner.analysis.derive import summarize
from runner.analysis.results import Summary
from runner.analysis.texts import is_plain_pass
from runner.cli.commands import job_command
from runner.cli.exit_codes import BAD_INPUT, FAILURES, INTERRUPTED, OK
from runner.cli.formats import CONSOLE, JSON_LINES, Formats
from runner.cli.progress import view
from runner.cli.streams import STANDARD_OUTPUT, output_fails, tell
from runner.engine.executors import Executor, Work
from runner.engine.executors.ahead import crowded, jobs_ahead
from runner.engine.executors.local import LocalExecutor
from runner.engine.experiments import Policy, Selected, confirming, next_attempt
from runner.engine.gate import sessions
from runner.engine.worker_start import HostPool
from runner.errors import UsageError
from runner.names import counted
from runner.plan.config import Where
from runner.plan.probe import asking_for
from runner.reports import render_all
from runner.reports.adapters.json_lines import print_rows
from runner.reports.console import print_answer, print_report
from runner.reports.parts.grid import say
from runner.runs.compare.release import FILE as RELEASE
from runner.runs.compare.release import release_page
from runner.runs.why.asking import ASKED, usable
from runner.runs.why.page import asked_in, say_why
from runner.store.figures import read_figures
from runner.store.joined import results_of
from runner.store.run_folder import RunFolder

PAGE = "report.html"
STOPPED_EARLY, OUT_OF_TIME = "Stopped early", "The time limit ended the run"
SHORT_RUN = 12  # records: of these, also passes have a picture of parity


def measure(
    folder: RunFolder,
    jobs: Sequence[Job],
    console: Console,
    executor: Executor,
    formats: Formats,
    time_limit_s: float | None = None,
    select: Callable[[Sequence[Record]], Selected] | None = None,
) -> int:
    """Measures the missing jobs, as the folder's run was asked, then again what is to be confirmed; reports.

    ``select``: by the records so far, what ``--confirm`` measures again. Returns the exit code.
    """
    asks = asked_in(folder)
    policy = usable(ASKED[asks][0], asking_for(jobs)) if asks else next_attempt
    until = math.inf if time_limit_s is None else time.monotonic() + time_limit_s
    lines = formats is not None and JSON_LINES in formats

    def known(result: Record) -> None:
        if lines:
            print_rows(summarize([result]), folder.path, final=False)

    def between(left: str) -> None:
        report(folder, console, formats and formats - {JSON_LINES}, left)

    measured = partial(measure_missing, folder, jobs, console, executor, until=until, known=known)
    with _kept(folder):
        ended = measured(between=between, policy=policy)
        if select is not None and not ended and (selected := select(folder.read().processes)):
            results, policy = counted(len(selected), "result"), confirming(selected)
            say(console, f"--confirm: a gate would fail by {results}: measured again")
            ended = measured(policy=policy)
        if ended and not folder.read().records:
            say(console, f"Stopped: nothing was measured yet; {folder.how_to_go_on()}")
            return INTERRUPTED
        unfinished = f"{ended}; {folder.how_to_go_on()}" if ended else ""
        code = report(folder, console, formats, unfinished)
    return INTERRUPTED if ended == STOPPED_EARLY else code


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
    ahead = jobs_ahead(jobs) if where.prepare_ahead is None else where.prepare_ahead
    if note := crowded(jobs, where.prepare_ahead or 1):
        print(f"note: {note}", file=sys.stderr)
    with HostPool(max(2, len({job.device for job in jobs}) * sessions(ahead))) as hosts:
        yield LocalExecutor(job_command, fork=where.fork_server, ahead=where.prepare_ahead, hosts=hosts)


def measure_missing(
    folder: RunFolder,
    jobs: Sequence[Job],
    console: Console,
    executor: Executor,
    *,
    until: float = math.inf,
    between: Callable[[str], object] = lambda _: None,
    policy: Policy = next_attempt,
    known: Callable[[Record], object] = lambda _: None,
) -> str:
    """Measures, in passes, what the jobs have no record of. Returns why it ended early; "": it did not.

    In the first pass, every job gets one process: its number is printed as soon as it is known. Later passes
    pursue what is open, the cheapest first. ``between`` is called after the first pass, with a line on what
    is left. ``until``: no process begins after this time. ``known`` hears of each result so far.
    """
    records: dict[str, list[Record]] = {job.key: [] for job in jobs}
    for record in folder.read().processes:
        records.setdefault(record.job.key, []).append(record)
    work = next_pass(jobs, records, policy)
    say(console, f"{counted(len({item.job.key for item in work}), 'job')} -> {folder.path}")
    with _interrupts() as pressed:

        def stop() -> bool:
            return pressed() or time.monotonic() > until

        while work and not stop():
            _measure_pass(work, folder, records, console, executor, stop, known)
            before = {item.job.key: item.attempt for item in work}
            was_first = work[0].attempt.is_first
            # an attempt that changes nothing is not repeated
            work = [w for w in next_pass(jobs, records, policy) if w.attempt != before.get(w.job.key)]
            if was_first and work and not work[0].attempt.is_first and not stop():
                between(left_text(work))
        if pressed():
            return STOPPED_EARLY
        return OUT_OF_TIME if stop() and next_pass(jobs, records, policy) else ""


def next_pass(
    jobs: Sequence[Job], records: Mapping[str, Sequence[Record]], policy: Policy = next_attempt
) -> list[Work]:
    """The next pass: the first process of every job; then what is left of each, the cheapest first.

    The very first job is a pass of its own, so that jobs that prepare beside it do not delay its number.
    """
    attempts = [policy(job, records[job.key]) for job in jobs]
    work = [
        Work(attempt=attempt, records=tuple(records[attempt.job.key]))
        for attempt in attempts
        if attempt is not None
    ]
    first = [item for item in work if item.attempt.is_first]
    # small models: first those of --quick, which compile fastest, then by their parameters
    first.sort(key=lambda work: ("quick" not in work.job.case.tags, work.job.case.parameters or math.inf))
    if first:
        return first if any(records.values()) else [replace(first[0], preview=True)]
    return sorted(work, key=lambda item: item.attempt.cost_s)


def left_text(work: Sequence[Work]) -> str:
    """How much is open, and how long it should take."""
    pursued = [item for item in work if not item.attempt.experiment]
    rounds = f"{counted(len(work) - len(pursued), 'job')} more in fresh processes"
    if not pursued:
        return rounds
    more = f"; {rounds}" if len(pursued) < len(work) else ""
    minutes = sum(item.attempt.cost_s for item in pursued) / 60
    verdicts = counted(sum(len(item.attempt.candidates) for item in pursued), "verdict")
    return f"{verdicts} open that further processes may close, in about {minutes:.0f} min{more}"


def _measure_pass(
    work: Sequence[Work],
    folder: RunFolder,
    records: dict[str, list[Record]],
    console: Console,
    executor: Executor,
    stop: Callable[[], bool],
    known: Callable[[Record], object],
) -> None:
    """Adds to ``records``. The view hears of the result so far, and not of single processes."""
    confirms = {item.job.key: item.attempt.confirms for item in work}
    jobs, begun = len(work), 0
    if work[0].attempt.is_first:  # of all jobs, those that have begun are not in this pass
        jobs, begun = len(records), sum(bool(own) and key not in confirms for key, own in records.items())
    for note in filter(None, (item.attempt.note for item in work)):
        say(console, note)
    # closing ends the workers, also after an error in this loop
    with view(console, jobs, begun) as seen, closing(executor.run(work, folder, stop)) as events:
        for event in events:
            if not isinstance(event, Record):
                seen.event(event)
                continue
            event = replace(event, confirms=confirms[event.job.key])  # noqa: PLW2901
            folder.append(event)
            own = records[event.job.key]
            own.append(event)
            if not event.experiment:
                mine = [record for record in own if record.candidate == event.candidate]
                seen.event(result := results_of(mine)[0])
                known(result)


def report(folder: RunFolder, console: Console, formats: Formats = None, unfinished: str = "") -> int:
    """What is derived from ``records.jsonl``, to the folder and the console; the exit code.

    ``formats``: only these; None: all, or the explanations of a run of --why or --tune. ``unfinished``: a
    sentence before the answer. Garbage collection is off meanwhile: among millions of objects that stay there
    is nothing to collect.
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
    if formats is None and asked_in(folder):
        fine = say_why(folder, content.processes, console, unfinished)
        return BAD_INPUT if content.damage else OK if fine else FAILURES
    if not content.records:
        print(f"error: {folder.records_path} holds no record", file=sys.stderr)
        return BAD_INPUT
    short = len(content.records) <= SHORT_RUN
    drawn = [record for record in content.records if short or not is_plain_pass(record)]
    summary = replace(summarize(content.records), figures=read_figures(folder.path, drawn))
    files = render_all(summary, formats)
    if formats is None or "md" in formats:
        files |= release_page(folder.path, content.records, content.processes)
    _show(summary, files, folder, console, formats, unfinished)
    if content.damage:
        return BAD_INPUT
    fine = all(record.status.passed or not record.status.counted for record in content.records)
    return OK if fine else FAILURES


def _show(
    summary: Summary,
    files: Mapping[str, bytes],
    folder: RunFolder,
    console: Console,
    formats: Formats,
    unfinished: str,
) -> None:
    """Writes the files and prints the report, which ends with the answer and the path of report.html."""
    printed = formats is None or CONSOLE in formats
    try:
        folder.write_derived(files)
    except UsageError:  # a full disk does not hide the numbers
        print_report(summary, console)
        raise
    if printed:
        print_report(summary, console)
    if formats is not None and JSON_LINES in formats:
        print_rows(summary, folder.path, final=True)
    if traces := len([*folder.path.glob("cases/*/trace-*.json")]):
        say(console, f"{counted(traces, 'trace')} for ui.perfetto.dev: {folder.path}/cases/*/trace-*.json")
    if RELEASE in files:
        say(console, f"Changes between the environments, by severity: {folder.path / RELEASE}")
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
