"""What is printed instead of run: cases, commands, compilers."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping

from harness.schema import Job
from runner.commands import job_command
from runner.compilers import Usable
from runner.config import Action, RunConfig
from runner.exit_codes import OK
from runner.labels import batch_text, plain, suite_labels
from runner.partition import nothing_in, part_of
from runner.plan import ON_REQUEST, plan, setting_for, suite_cases
from runner.probe import usable_compilers


def our_part(config: RunConfig, jobs: tuple[Job, ...]) -> tuple[Job, ...]:
    """The jobs of the plan that are this machine's; where there are none, says so."""
    part = part_of(jobs, config.partition)
    if config.partition is not None and not part:
        print(nothing_in(config.partition, len(jobs)), file=sys.stderr)
    return part


def _list(config: RunConfig) -> int:
    """Every case that the flags select, and those that run only when named."""
    jobs = our_part(config, plan(config))
    for suite in config.suites:
        selected = {job.case.name: job.case for job in jobs if job.case.suite == suite}
        offered = [
            case
            for mode in config.modes
            for case in suite_cases(suite, setting_for(config, config.devices[0], mode))
        ]
        named = bool(config.selection.only or config.selection.filters or config.partition)
        on_request = {c.name: c for c in offered if ON_REQUEST in c.tags and not named}
        for case in (*selected.values(), *on_request.values()):
            notes = "" if case.name in selected else "  (only when named)"
            notes += f"  (skipped: {case.skip})" if case.skip else ""
            label = suite_labels([suite])[suite]
            print(plain(f"{label:12} {case.name:40} {case.scale:5}  batch {batch_text(case)}{notes}"))
    return OK


def _print_commands(config: RunConfig) -> int:
    jobs = plan(config)
    if config.environments:
        from runner.environments.prepare import named

        jobs = named(config.environments, jobs)
    for job in our_part(config, jobs):
        print(job_command(job))
    return OK


def _list_compilers(config: RunConfig) -> int:
    """Every compiler for each kind of device: what it is, or why it cannot be used here."""
    kinds = tuple(dict.fromkeys(device.split(":")[0] for device in config.devices))
    if not config.environments:
        for kind in kinds:
            _print_compilers(kind, usable_compilers(kind))
        return OK
    from runner.environments.prepare import usable_in

    for heading, kind, found in usable_in(config.environments, kinds):
        print(plain(heading))
        _print_compilers(kind, found)
    return OK


def _print_compilers(device_type: str, compilers: Mapping[str, Usable]) -> None:
    for name, found in compilers.items():
        state = "no " if found.why_not else "yes"
        modes = f" ({' and '.join(found.modes)} only)" if found.modes else ""
        print(f"{device_type:5} {name:36} {state}  {found.why_not or found.what}{modes}")


LISTINGS: Mapping[Action, Callable[[RunConfig], int]] = {
    Action.LIST: _list,
    Action.LIST_COMPILERS: _list_compilers,
    Action.PRINT_COMMANDS: _print_commands,
}
