"""The actions: run a plan, rebuild a report, look at finished runs."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Any

from harness.schema import Job, Record, Status
from runner.compilers import with_availability
from runner.config import Action, Request, RunConfig
from runner.errors import UsageError
from runner.exit_codes import BAD_INPUT, FAILURES, INTERRUPTED, OK
from runner.formats import printed
from runner.listings import LISTINGS, our_part
from runner.partition import part_facts
from runner.plan import plan
from runner.probe import usable_compilers

if TYPE_CHECKING:
    from rich.console import Console

    from runner.executors import Executor, Work
    from runner.run_folder import RunFolder


def perform(request: Request, argv: Sequence[str]) -> int:
    """Does what was asked; returns the exit code. Heavy imports wait until they are needed."""
    if request.action in LISTINGS:
        return LISTINGS[request.action](_planned(request))
    from rich.console import Console

    from runner.executors import opened
    from runner.run_folder import RunFolder

    console = Console()
    if request.action is Action.VISUALIZE:
        assert request.folder is not None
        folder = RunFolder.reopen("--visualize-logs", request.folder)
        return report(folder, console, request.formats)
    if request.action is Action.RESUME:
        assert request.folder is not None
        folder = RunFolder.reopen("--resume", request.folder)
        if any(job.environments for job in folder.jobs()):
            from runner.environments.resolve import check_still_there

            check_still_there(folder.jobs())
        with opened(request.where, folder.jobs()) as executor:
            return _measure(folder, folder.jobs(), console, executor, request.formats)
    if request.action in LOOKS:
        return _look(request, console)
    if request.action in (Action.MERGE, Action.BISECT):
        return (_merge if request.action is Action.MERGE else _bisect)(request, argv, console)
    return _run(request, argv, console)


def _planned(request: Request) -> RunConfig:
    assert request.config is not None
    return request.config


LOOKS = (Action.DOCTOR, Action.INDEX, Action.COMPARE, Action.UPDATE_EXPECTED, Action.HISTORY)


def _look(request: Request, console: Console) -> int:
    """What looks at this machine, or at finished runs."""
    if request.changes is not None or request.history is not None:
        return _hold_together(request, console)
    if request.action is Action.DOCTOR:
        from runner.doctor import examine

        return examine(console)
    from runner.index_page import write_index

    assert request.folder is not None
    console.print(write_index(request.folder), markup=False, highlight=False, soft_wrap=True)
    return OK


def _hold_together(request: Request, console: Console) -> int:
    """What finished runs say beside each other."""
    if request.history is not None:
        from runner.history.command import show_history

        return show_history(request.history, request.formats, console)
    from runner.changes.command import compare_runs, update

    assert request.changes is not None
    if request.action is Action.UPDATE_EXPECTED:
        return update(request.changes, console)
    return compare_runs(request.changes, request.formats, console)


def _run(request: Request, argv: Sequence[str], console: Console) -> int:
    from runner.executors import opened
    from runner.run_folder import RunFolder

    config = _planned(request)
    whole, about = plan(config), dict[str, Any]()
    if config.environments:
        from runner.environments.prepare import prepared

        whole, about = prepared(config.environments, whole, skip=config.skip_unavailable)
    jobs = our_part(config, whole)
    if not jobs:
        return OK
    if request.where.executor == "local" and not config.environments:
        _check_devices(config.devices)
        jobs = with_availability(jobs, usable_compilers, skip=config.skip_unavailable)
    facts = {**part_facts(config.partition, whole), **({"tags": list(config.tags)} if config.tags else {})}
    with opened(request.where, jobs) as executor:
        folder = RunFolder.create(config.output_dir, jobs, argv, {**facts, **about})
        return _measure(folder, jobs, console, executor, request.formats)


def _merge(request: Request, argv: Sequence[str], console: Console) -> int:
    from runner.merge import merge

    folder, notes = merge(request.folders, request.output_dir, argv)
    code = report(folder, console, request.formats)
    _enter(folder)
    for note in notes:
        console.print(note, markup=False, highlight=False, soft_wrap=True)
    return code


def _bisect(request: Request, argv: Sequence[str], console: Console) -> int:
    from runner.bisect.command import bisect

    assert request.bisect is not None
    return bisect(request.bisect, _planned(request), request.where, argv, console)


def _enter(folder: RunFolder) -> None:
    """Into the index of runs beside the folder; a run never fails for it."""
    from runner.history.enter import enter

    enter(folder.path)


def _check_devices(devices: Sequence[str]) -> None:
    """Asks a worker's torch whether the devices are there. The CPU always is, and costs no question."""
    from runner.probe import missing_devices

    wanted = [device for device in devices if device != "cpu"]
    if wanted:
        for device, why in missing_devices(wanted).items():
            raise UsageError(f"--devices: {device} is not there ({why}); use --devices=cpu")


def _measure(
    folder: RunFolder,
    jobs: Sequence[Job],
    console: Console,
    executor: Executor,
    formats: frozenset[str] | None,
) -> int:
    with _kept(folder):
        stopped = measure_missing(folder, jobs, console, executor)
        code = report(folder, console, formats)
        _enter(folder)
        left = 0 if stopped else len(_without_records(folder, jobs))
    if left:
        sentence = f"The time budget ended before {left} of {len(jobs)} jobs; {folder.how_to_go_on()}"
        console.print(sentence, markup=False, highlight=False, soft_wrap=True)
    if stopped:
        console.print(
            f"Stopped early; {folder.how_to_go_on()}", markup=False, highlight=False, soft_wrap=True
        )
        return INTERRUPTED
    return code


@contextmanager
def _kept(folder: RunFolder) -> Iterator[None]:
    """The folder is ours alone; whatever ends the run early, a sentence says how to go on."""
    try:
        with folder.claimed() as torn:
            if torn:
                print(f"note: {torn}", file=sys.stderr)
            yield
    except BrokenPipeError:
        raise  # whoever read what we print has gone
    except OSError as error:
        raise folder.unwritable(error) from None
    except KeyboardInterrupt:
        print(folder.how_to_go_on(), file=sys.stderr)
        raise


def measure_missing(folder: RunFolder, jobs: Sequence[Job], console: Console, executor: Executor) -> bool:
    """Whether it was stopped early."""
    from runner.progress import view

    missing = _without_records(folder, jobs)
    console.print(f"{len(missing)} jobs -> {folder.path}", markup=False, highlight=False, soft_wrap=True)
    with _interrupts() as stop, view(console, len(missing)) as seen:
        # closing: whatever ends this loop ends the workers
        with closing(executor.run(missing, folder, stop)) as events:
            for event in events:
                if isinstance(event, Record):
                    folder.append(event)
                seen.event(event)
        return stop()


def _without_records(folder: RunFolder, jobs: Sequence[Job]) -> list[Work]:
    """What has no record yet."""
    from runner.executors import Work

    done = {(r.job.key, r.candidate) for r in folder.read().records}
    return [Work(job=job, candidates=rest) for job in jobs if (rest := _missing(job, done))]


def _missing(job: Job, done: set[tuple[str, str]]) -> tuple[str, ...]:
    return tuple(candidate for candidate in job.candidates if (job.key, candidate) not in done)


def report(folder: RunFolder, console: Console, formats: frozenset[str] | None = None) -> int:
    """What is derived from ``records.jsonl``, to the folder and the console; the exit code.

    ``formats``: only these; None: all.
    """
    from runner.no_collection import without_collection

    with without_collection():
        return _report(folder, console, formats)


def _report(folder: RunFolder, console: Console, formats: frozenset[str] | None) -> int:
    from runner.derive import summarise
    from runner.reports import render_all
    from runner.reports.console import print_report

    try:
        found = folder.read()
    except OSError as error:
        raise UsageError(f"{folder.records_path} cannot be read ({error.strerror})") from None
    for sentence in found.damage:
        print(f"error: {sentence}", file=sys.stderr)
    if found.records:
        summary = summarise(found.records)
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
    fine = all(record.status.passed or record.status is Status.SKIP for record in found.records)
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
