"""``--why``: explains the speed of a compiled step; ``--tune``: tries the settings that matter."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.backends.settings.candidates import compiler_of
from harness.settings import Given, Group, flag
from runner.cli.actions.measure import MeasureRequest, planned
from runner.cli.commands import job_command
from runner.cli.exit_codes import FAILURES, OK
from runner.errors import UsageError
from runner.plan.compilers import COMPILERS

if TYPE_CHECKING:
    from rich.console import Console

    from harness.schema import Job, Record

DEFAULT = "inductor"
_action = partial(flag, group=Group.ACTIONS)
WHY = _action("--why", help="explain the speed of one compiler on the chosen models: docs/WHY.md")
TUNE = _action(
    "--tune", help="try the settings that matter for the chosen models, and keep what wins: docs/WHY.md"
)
FLAGS = (WHY,)
LOOKS = 3  # rounds of the copy that is compiled for looking

Request = tuple[MeasureRequest, bool]


def parse(given: Given) -> Request:
    request = planned(given)
    config = request.config
    action = "--why" if WHY.key in given else "--tune"
    named = config.compilers if any(one.key in given for one in COMPILERS) else (DEFAULT,)
    if len(named) != 1:
        raise UsageError(f"{action} explains one compiler; name one with --compilers, not {len(named)}")
    if compiler_of(named[0]) == "eager" or named[0] in config.own_compilers:
        raise UsageError(f"{action}: {named[0]} has no settings to test; name a backend of torch.compile")
    if config.environments or request.where.executor == "ray":
        raise UsageError(
            f"{action} measures in one environment of this machine; leave --envs and --executor out"
        )
    if not config.protocol.performance:
        raise UsageError(f"{action} needs times; leave --accuracy out")
    return replace(request, config=replace(config, compilers=named)), WHY.key in given


def perform(request: Request, argv: Sequence[str]) -> int:
    from rich.console import Console

    from runner.plan.compilers import with_availability
    from runner.plan.jobs import plan
    from runner.plan.possible import check_devices, check_jobs, check_threads
    from runner.plan.probe import asking_for
    from runner.reports.parts.grid import say
    from runner.runs.why.words import as_json, markdown, show
    from runner.store.run_folder import new_folder

    measure, asks_why = request
    config, console = measure.config, Console()
    jobs = plan(config)
    check_threads(config.protocol.threads)
    check_devices(config.devices)
    jobs = with_availability(jobs, asking_for(jobs), skip=False)
    check_jobs(jobs)
    folder = new_folder(config.output_dir, "why" if asks_why else "tune")
    whys = []
    for job in jobs:
        why = _explained(job, folder / job.key, measure, argv, console, asks_why=asks_why)
        if why is None:
            continue
        show(why, console)
        if not asks_why:
            _say_winner(why, console)
        whys.append(why)
    (folder / "why.md").write_text(markdown(whys), encoding="utf-8")
    (folder / "why.json").write_text(json.dumps(as_json(whys), indent=1) + "\n", encoding="utf-8")
    say(console, f"\nwhy.md, why.json and the records: {folder}")
    return OK if len(whys) == len(jobs) else FAILURES


def _explained(
    job: Job, folder: Path, request: MeasureRequest, argv: Sequence[str], console: Console, *, asks_why: bool
) -> Any:
    """The explanation of the job's candidate; None if it has no times."""
    from runner.reports.parts.grid import say
    from runner.runs.why.explain import candidates_for, explain, proposals, settings_to_try, with_setting
    from runner.runs.why.looked import LOOKING, Looked
    from runner.runs.why.tune import tuning

    (candidate,) = job.candidates
    looked = None
    if asks_why:
        protocol = replace(job.protocol, accuracy=False, repeat=LOOKS)
        extras = replace(job.extras, explain=True, profiler_trace=True)
        look = with_setting(candidate, ",".join(LOOKING)) if "inductor" in candidate else candidate
        say(console, f"{job.case.name}: a second copy of {candidate}, for looking")
        looking = replace(job, candidates=(look,), protocol=protocol, extras=extras)
        records = _measured(looking, folder / "look", request, argv, console)
        looked = Looked.of(records[0]) if records else None
    proposed = tuning(job) if looked is None and not asks_why else proposals(looked) if looked else ()
    settings = settings_to_try(proposed) if asks_why else proposed[0].settings
    timed = replace(job, candidates=candidates_for(candidate, settings))
    say(console, f"{job.case.name}: {', '.join(timed.candidates)}, in the same rounds")
    records = _measured(timed, folder / "pairs", request, argv, console)
    try:
        return explain(candidate, records, proposed, looked)
    except ValueError as error:
        say(console, f"{job.case.name}: {error}; the log is in {folder}")
        return None


def _measured(
    job: Job, path: Path, request: MeasureRequest, argv: Sequence[str], console: Console
) -> Sequence[Record]:
    from runner.cli.measuring import measure_missing
    from runner.engine.executors.choice import opened
    from runner.plan.compilers import with_availability
    from runner.plan.probe import asking_for
    from runner.store.run_folder import RunFolder

    jobs = with_availability((job,), asking_for((job,)), skip=True)
    with opened(request.where, jobs, job_command) as executor:
        folder = RunFolder.create(path, jobs, argv, {})
        with folder.claimed():
            if measure_missing(folder, jobs, console, executor):
                raise KeyboardInterrupt
    return folder.read().records


def _say_winner(why: Any, console: Console) -> None:
    from runner.reports.parts.grid import say
    from runner.runs.why.tune import winner

    best = winner(why.attempts)
    say(
        console, f"Keep: {best.setting}" if best else "Keep the plain candidate: no setting wins with parity."
    )
