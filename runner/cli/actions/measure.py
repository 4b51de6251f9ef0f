"""Measures a plan or, with ``--resume``, the jobs that an interrupted run did not finish."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.devices import of
from harness.hardware.cpus import cpu_model, usable_cpus
from harness.hardware.installed import version_of
from harness.schema import SCHEMA_VERSION
from harness.settings import Given, Group, Kind, flag, placed
from harness.worker.limits import THREAD_VARIABLES
from runner.cli.actions.compare import FAIL_ON, code_of
from runner.cli.exit_codes import FAILURES, OK
from runner.cli.formats import Formats, console_for, formats_asked
from runner.errors import UsageError
from runner.plan.checks import check_where, idle, run_config, where_asked
from runner.plan.compilers import LEAVE_OUT
from runner.plan.config import RunConfig, Where
from runner.plan.jobs import plan
from runner.plan.partition import our_part, part_facts
from runner.plan.probe import WHERE_IT_BEGAN, check_hardware, check_jobs, devices_here, possible_here
from runner.plan.settings import listed, read, value_of, words

if TYPE_CHECKING:
    from rich.console import Console

    from runner.runs.compare.gates import Gate
    from runner.store.run_folder import RunFolder

RESUME = flag("--resume=DIR", group=Group.ACTIONS, help="measure the missing jobs of an interrupted run")
CONFIRM = flag(
    "--confirm",
    group=Group.ACTIONS,
    help="with --fail-on: measure again what a gate would fail, in as many fresh processes; it fails only if "
    "these, without the first ones, fail it as well: docs/CI.md",
)
FLAGS = (RESUME, CONFIRM)
ANOTHER = "name another compiler"
ALSO = (FAIL_ON,)  # a flag of another action


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasureRequest:
    """A configuration; with ``folder``, this run is continued, whose plan has its own."""

    config: RunConfig
    folder: Path | None = None
    where: Where
    formats: Formats
    gates: tuple[Gate, ...] = ()
    confirm: bool = False
    notes: tuple[str, ...] = ()  # on the flags
    asks: str = ""  # of --why and --tune: their name


def parse(given: Given) -> MeasureRequest:
    if RESUME.key not in given:
        request, confirm = planned(given), CONFIRM.key in given
        if FAIL_ON.key not in given:
            if confirm:
                raise UsageError("--confirm: no gate can fail; add --fail-on, or leave it out")
            return request
        from runner.runs.compare.gates import gates_asked

        gates = gates_asked(listed(FAIL_ON.long, given[FAIL_ON.key]), request.config)
        return replace(request, gates=gates, confirm=confirm)
    where, folder = read(Where(), given), Path(given[RESUME.key])
    return MeasureRequest(config=RunConfig(), folder=folder, where=where, formats=formats_asked(given))


def planned(given: Given, *, mode_required: bool = True) -> MeasureRequest:
    """The request of a command that measures, also where it only lists what it would measure."""
    config = run_config(given, mode_required=mode_required)
    where, notes = where_asked(given, config), tuple(idle(given, config))
    return MeasureRequest(config=config, where=where, formats=formats_asked(given), notes=notes)


def perform(request: MeasureRequest, argv: Sequence[str]) -> int:
    console = console_for(request.formats)
    if request.folder is not None:
        return _resume(request.folder, request, console)
    code, folder = measured(request, argv, console)
    if folder is None or code not in (OK, FAILURES) or not request.gates:
        return code
    from runner.runs.compare.confirm import gates_of_run
    from runner.runs.compare.views import print_result

    processes, jobs = folder.read().processes, folder.jobs()
    results, refusals = gates_of_run(folder.path, jobs, processes, request.gates, confirm=request.confirm)
    for result in results:
        print_result(result, console)
    of_gates = code_of(results, refusals)
    return code or of_gates


def measured(request: MeasureRequest, argv: Sequence[str], console: Console) -> tuple[int, RunFolder | None]:
    """Measures the configuration's plan: the exit code, and the folder; None if the plan is empty."""
    from runner.cli.measuring import measure, opened
    from runner.runs.why.page import ASKS
    from runner.store.run_folder import FILES, THREADS, RunFolder, own_files

    config = request.config
    whole, about = plan(config), dict[str, Any]()
    if config.environments:
        from runner.plan.environments.prepare import prepared

        whole, about = prepared(config.environments, whole, skip=config.skip_unavailable)
    if request.where.executor == "local":  # the plan of a part has what is unavailable in all parts
        whole = possible_here(config, whole, instead=ANOTHER if request.asks else LEAVE_OUT)
    jobs = our_part(config.partition, whole)
    if not jobs:
        return OK, None
    facts = {**part_facts(config.partition, whole), **({"tags": list(config.tags)} if config.tags else {})}
    facts |= {THREADS: _threads_here(), FILES: own_files(jobs), **about}
    facts |= {ASKS: request.asks} if request.asks else {}
    with opened(request.where, jobs) as executor:
        more = words(request.where, ([], Where()))
        folder = RunFolder.create(config.output_dir, jobs, argv, facts, more)
        for note in request.notes:
            print(f"note: {note}", file=sys.stderr)
        select = None
        if request.confirm:
            from runner.runs.compare.confirm import to_confirm

            select = partial(to_confirm, folder.path, gates=request.gates)
        limit_s = request.where.time_limit_s
        return measure(folder, jobs, console, executor, request.formats, limit_s, select), folder


def _resume(path: Path, request: MeasureRequest, console: Console) -> int:
    from runner.cli.commands import config_of
    from runner.cli.measuring import measure, opened
    from runner.store.run_folder import RunFolder

    folder = RunFolder.reopen(RESUME.long, path, words(request.where, ([], Where())))
    jobs = folder.jobs()
    if request.where.executor == "local":
        _check_same_machine(folder)
    for job in jobs:
        check_where(request.where, config_of(job, job.candidates))
    if any(job.environments for job in jobs):
        from runner.plan.environments.prepare import check_still_there

        check_still_there(jobs)
    if request.where.executor == "local":
        # a failure for lack of a file or a device would count as measured
        for suite in {job.case.suite for job in jobs}:
            value_of(RESUME.long, Kind(placed), suite)
        check_hardware(jobs, instead=WHERE_IT_BEGAN)
        check_jobs(jobs)
        for sentence in folder.edited(jobs):
            print(f"note: {sentence}", file=sys.stderr)
        jobs = folder.pursued(jobs)
    with opened(request.where, jobs) as executor:
        return measure(folder, jobs, console, executor, request.formats, request.where.time_limit_s)


def _check_same_machine(folder: RunFolder) -> None:
    """``UsageError`` for results of another processor, device, torch or choice of threads."""
    from runner.store.run_folder import THREADS

    known = folder.read().processes if folder.records_path.exists() else ()
    if any(record.schema_version < SCHEMA_VERSION for record in known):
        raise UsageError(
            f"{RESUME.long}: {folder.path} was measured by an older version; measure the other jobs in a new "
            "folder"
        )
    in_ours = [record for record in known if not record.job.environments]
    devices = {record.job.device for record in in_ours if of(record.job.device).accelerated}
    models = devices_here(sorted(devices))["models"] if devices else {}
    on_device = {device: [r for r in in_ours if r.job.device == device] for device in models}
    facts_here = [("cpu", known, cpu_model()), ("torch", in_ours, version_of("torch"))]
    facts_here += [("device_name", on_device[device], model) for device, model in models.items()]
    for name, records, here in facts_here:
        facts = {record.environment.get(name) for record in records} - {None}
        # the version that a wheel from PyPI states has no local part, such as +cu128
        others = sorted(f"{name} {fact}" for fact in facts if here not in (fact, str(fact).partition("+")[0]))
        if others:
            raise UsageError(
                f"{RESUME.long}: {folder.path} has results of {' and '.join(others)}, and this is {name} "
                f"{here}; measure the other jobs in a new folder"
            )
    chosen = {record.job.device for record in known if record.job.protocol.threads is None}
    if all(of(device).accelerated for device in chosen):
        return
    for then, now in zip(folder.told(THREADS), _threads_here(), strict=False):
        if then != now:
            raise UsageError(
                f"{RESUME.long}: torch chose its threads by {then}, and here by {now}; go on under the same "
                "conditions, or measure the other jobs in a new folder"
            )


def _threads_here() -> list[str]:
    """What decides how many threads torch takes on a CPU without ``--threads``."""
    variables = [f"{name} {os.environ.get(name, '(not set)')}" for name in THREAD_VARIABLES]
    return [f"{len(usable_cpus())} usable CPUs", *variables]
