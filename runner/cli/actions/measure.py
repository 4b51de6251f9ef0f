"""Measures a plan or, with ``--resume``, the jobs that an interrupted run did not finish."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.settings import Given, Group, flag
from runner.cli.commands import job_command
from runner.cli.exit_codes import OK
from runner.cli.formats import formats_asked
from runner.plan.checks import run_config, where_asked
from runner.plan.compilers import with_availability
from runner.plan.config import RunConfig, Where
from runner.plan.jobs import plan
from runner.plan.partition import our_part, part_facts
from runner.plan.possible import check_devices, check_jobs, check_threads
from runner.plan.probe import asking_for

if TYPE_CHECKING:
    from rich.console import Console

    from harness.schema import Job

RESUME = flag(
    "--resume", group=Group.ACTIONS, metavar="DIR", help="measure the missing jobs of an interrupted run"
)
CALLED_BY = (RESUME,)


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A configuration; with ``folder``, this run is continued, whose plan has its own."""

    config: RunConfig
    folder: Path | None = None
    where: Where
    formats: frozenset[str] | None  # None: all


def add_flags(add: Callable[..., None]) -> None:
    add(RESUME)


def parse(given: Given) -> Asked:
    if RESUME.key not in given:
        return planned(given)
    unchanged = RunConfig()
    where, folder = where_asked(given, unchanged), Path(given[RESUME.key])
    return Asked(config=unchanged, folder=folder, where=where, formats=formats_asked(given))


def planned(given: Given, *, mode_required: bool = True) -> Asked:
    """The request of a command that measures, also where it only lists what it would measure."""
    config = run_config(given, mode_required=mode_required)
    return Asked(config=config, where=where_asked(given, config), formats=formats_asked(given))


def perform(asked: Asked, argv: Sequence[str]) -> int:
    from rich.console import Console

    if asked.folder is None:
        return _run(asked.config, asked, argv, Console())
    return _resume(asked.folder, asked, Console())


def _run(config: RunConfig, asked: Asked, argv: Sequence[str], console: Console) -> int:
    from runner.cli.measuring import measure
    from runner.engine.executors.choice import opened
    from runner.store.run_folder import RunFolder

    whole, about = plan(config), dict[str, Any]()
    if config.environments:
        from runner.plan.environments.prepare import prepared

        whole, about = prepared(config.environments, whole, skip=config.skip_unavailable)
    jobs = our_part(config.partition, whole)
    if not jobs:
        return OK
    if asked.where.executor == "local":
        check_threads(config.protocol.threads)
        if not config.environments:
            check_devices(config.devices)
            jobs = with_availability(jobs, asking_for(jobs), skip=config.skip_unavailable)
        check_jobs(jobs)
    facts = {**part_facts(config.partition, whole), **({"tags": list(config.tags)} if config.tags else {})}
    _note_crowd(asked.where, jobs)
    with opened(asked.where, jobs, job_command) as executor:
        folder = RunFolder.create(config.output_dir, jobs, argv, {**facts, **about})
        return measure(folder, jobs, console, executor, asked.formats)


def _resume(path: Path, asked: Asked, console: Console) -> int:
    from runner.cli.measuring import measure
    from runner.engine.executors.choice import opened
    from runner.store.run_folder import RunFolder

    folder = RunFolder.reopen(RESUME.long, path)
    jobs = folder.jobs()
    if any(job.environments for job in jobs):
        from runner.plan.environments.resolve import check_still_there

        check_still_there(jobs)
    _note_crowd(asked.where, jobs)
    with opened(asked.where, jobs, job_command) as executor:
        return measure(folder, jobs, console, executor, asked.formats)


def _note_crowd(where: Where, jobs: Sequence[Job]) -> None:
    if where.executor != "local":
        return
    from runner.engine.executors.ahead import crowded

    note = crowded(jobs, where.prepare_ahead or 1)
    if note:
        print(f"note: {note}", file=sys.stderr)
