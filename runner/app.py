"""The actions: run a plan, rebuild a report, list, print commands."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from harness.schema import Job, Record, Status
from runner.commands import job_command
from runner.config import Action, Request, RunConfig
from runner.errors import UsageError
from runner.labels import batch_text, suite_labels
from runner.plan import ON_REQUEST, plan, setting_for, suite_cases

if TYPE_CHECKING:
    from rich.console import Console

    from runner.progress import View
    from runner.run_folder import RunFolder

OK, FAILURES, BAD_INPUT, INTERRUPTED = 0, 1, 2, 130


def perform(request: Request, argv: Sequence[str]) -> int:
    """Does what was asked; returns the exit code. Heavy imports wait until they are needed."""
    if request.action is Action.LIST:
        return _list(_planned(request))
    if request.action is Action.PRINT_COMMANDS:
        for job in plan(_planned(request)):
            print(job_command(job))
        return OK
    from rich.console import Console

    from runner.run_folder import RunFolder

    console = Console()
    if request.action is Action.VISUALIZE:
        assert request.folder is not None
        return report(RunFolder.reopen("--visualize-logs", request.folder), console)
    if request.action is Action.RESUME:
        assert request.folder is not None
        folder = RunFolder.reopen("--resume", request.folder)
        return _measure(folder, folder.jobs(), console)
    config = _planned(request)
    jobs = plan(config)
    _check_devices(config.devices)
    return _measure(RunFolder.create(config.output_dir, jobs, argv), jobs, console)


def _planned(request: Request) -> RunConfig:
    assert request.config is not None
    return request.config


def _list(config: RunConfig) -> int:
    """Every case that the flags select, and those that run only when named."""
    jobs = plan(config)
    for suite in config.suites:
        selected = {job.case.name: job.case for job in jobs if job.case.suite == suite}
        offered = suite_cases(suite, setting_for(config, config.devices[0]))
        named = bool(config.selection.only or config.selection.filters)
        on_request = [c for c in offered if ON_REQUEST in c.tags and not named]
        for case in (*selected.values(), *on_request):
            notes = "" if case.name in selected else "  (only when named)"
            notes += f"  (skipped: {case.skip})" if case.skip else ""
            label = suite_labels([suite])[suite]
            print(f"{label:12} {case.name:40} {case.scale:5}  batch {batch_text(case)}{notes}")
    return OK


def _check_devices(devices: Sequence[str]) -> None:
    """Asks a worker's torch whether the devices are there. The CPU always is, and costs no question."""
    from runner.probe import missing_devices

    wanted = [device for device in devices if device != "cpu"]
    if wanted:
        for device, why in missing_devices(wanted).items():
            raise UsageError(f"--devices: {device} is not there ({why}); use --devices=cpu")


def _measure(folder: RunFolder, jobs: Sequence[Job], console: Console) -> int:
    from runner.progress import view

    done = {(r.job.key, r.candidate) for r in folder.read().records}
    missing = [(job, rest) for job in jobs if (rest := _missing(job, done))]
    console.print(f"{len(missing)} jobs -> {folder.path}", markup=False, highlight=False, soft_wrap=True)
    with _interrupts() as stop, view(console, len(missing)) as seen:
        for job, candidates in missing:
            if stop():
                break
            seen.job_started(job)
            for record in _records(folder, job, candidates, seen, stop):
                folder.append(record)
                seen.record(record)
            seen.job_ended()
        stopped = stop()
    code = report(folder, console)
    if stopped:
        console.print(f"Stopped early; go on with: python runner.py --resume {folder.path}", markup=False)
        return INTERRUPTED
    return code


def _missing(job: Job, done: set[tuple[str, str]]) -> tuple[str, ...]:
    return tuple(candidate for candidate in job.candidates if (job.key, candidate) not in done)


def _records(
    folder: RunFolder, job: Job, candidates: tuple[str, ...], seen: View, stop: Callable[[], bool]
) -> Iterator[Record]:
    from runner.execute import JobRun
    from runner.worker_process import WorkerProcess, worker_command, worker_environment

    log = folder.open_case(job)

    def launch(part: Job) -> WorkerProcess:
        environment = worker_environment(part.protocol.threads, online=part.case.pretrained)
        limit = part.protocol.max_memory_bytes
        return WorkerProcess(worker_command(), environment, log, seen.activity, limit)

    log_name = folder.relative(log)
    return JobRun(job, launch, seen, candidates=candidates, log=log_name, stop=stop).run()


def report(folder: RunFolder, console: Console) -> int:
    """Everything derived from ``records.jsonl``, to the folder and the console; the exit code."""
    from runner.derive import summarise
    from runner.reports import render_all
    from runner.reports.console import print_report

    found = folder.read()
    for sentence in found.damage:
        print(f"error: {sentence}", file=sys.stderr)
    if found.records:
        summary = summarise(found.records)
        folder.write_derived(render_all(summary))
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
