"""``--why``: explains the speed of a compiled step; ``--tune``: tries the settings that matter."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from harness.backends.settings.candidates import compiler_of
from harness.settings import Given, Group, flag
from runner.cli.actions.measure import MeasureRequest, planned, refuse_unused
from runner.cli.exit_codes import FAILURES, OK
from runner.errors import UsageError
from runner.plan.compilers import COMPILERS

if TYPE_CHECKING:
    from rich.console import Console

    from harness.schema import Job, Record
    from runner.runs.why.explain import Why

DEFAULT = "inductor"
ANOTHER = "name another compiler"
_action = partial(flag, group=Group.ACTIONS)
WHY = _action("--why", help="explain the speed of one compiler on the chosen models: docs/WHY.md")
TUNE = _action(
    "--tune", help="try the settings that matter for the chosen models, and keep what wins: docs/WHY.md"
)
FLAGS = (WHY,)


def parse(given: Given) -> tuple[MeasureRequest, bool]:
    """What to measure, and whether it is to be explained or tuned."""
    action = "--why" if WHY.key in given else "--tune"
    refuse_unused(given, action)
    request = planned(given)
    config = request.config
    named = config.compilers
    if not any(compiler.key in given for compiler in COMPILERS):
        named = tuple(name for name in named if name.startswith(DEFAULT))[:1]  # in its mode
    if len(named) != 1:
        raise UsageError(f"{action} explains one compiler; name one with --compilers, not {len(named)}")
    if compiler_of(named[0]) == "eager" or named[0] in config.own_compilers:
        raise UsageError(f"{action}: {named[0]} has no settings to test; name a backend of torch.compile")
    if config.environments or request.where.executor == "ray":
        here = "measures in one environment of this machine"
        raise UsageError(f"{action} {here}; leave --envs and --executor out")
    if config.protocol.isolate:
        raise UsageError(f"{action} compares settings in the same rounds of a process; leave --isolate out")
    if not config.protocol.performance:
        raise UsageError(f"{action} needs times; leave --accuracy out")
    return replace(request, config=replace(config, compilers=named)), WHY.key in given


def perform(request: tuple[MeasureRequest, bool], argv: Sequence[str]) -> int:
    from rich.console import Console

    from runner.plan.jobs import plan
    from runner.plan.partition import our_part
    from runner.plan.probe import possible_here
    from runner.reports.parts.grid import say
    from runner.runs.why import asking, explain, handover
    from runner.runs.why.words import show
    from runner.store.run_folder import new_folder

    measure_request, asks_why = request
    config, console = measure_request.config, Console()
    jobs = possible_here(config, our_part(config.partition, plan(config)), instead=ANOTHER)
    if not jobs:
        return OK
    if not asks_why:  # a compiler that takes no settings is refused before anything is measured
        names = [explain.with_setting(job.candidates[0], asking.tuning(job)[0].settings[0]) for job in jobs]
        tried = tuple(replace(job, candidates=(name,)) for job, name in zip(jobs, names, strict=True))
        possible_here(config, tried, instead=ANOTHER)
    folder = new_folder(config.output_dir, "why" if asks_why else "tune")
    whys: list[Why] = []
    try:
        for job in jobs:
            measure = partial(_measured, folder / job.key, measure_request, argv, console)
            try:
                why = (asking.asked_why if asks_why else asking.tuned)(job, measure, partial(say, console))
            except explain.NoTimes as error:
                say(console, f"{job.case.name}: {error}; the log is in {folder / job.key}")
                continue
            handover.hand_over(folder / job.key, folder / job.key / handover.TRACE, why)
            show(why, console)
            if not asks_why:
                failed = f"it is {why.plain.status.value}, so no setting is compared with it"
                reason = "no setting wins with parity" if why.plain.passed else failed
                best = asking.winner(why.attempts)
                say(console, f"Keep: {best.setting if best else f'the plain candidate: {reason}.'}")
            whys.append(why)
    finally:  # Ctrl-C loses no explanation; a program finds why.json where no model has times
        _write(folder, whys, console)
    return OK if len(whys) == len(jobs) else FAILURES


def _write(folder: Path, whys: Sequence[Why], console: Console) -> None:
    """The pages of all explanations."""
    from runner.reports.console import Writer
    from runner.reports.parts.grid import say
    from runner.runs.why.page import balance_png, page
    from runner.runs.why.words import as_json, markdown, overview

    if len(whys) > 1:
        Writer(console, "why.md").table(overview(whys))
    pictures = {why.plain.record.job.key: drawn for why in whys if (drawn := balance_png(why))}
    for key, picture in pictures.items():
        (folder / key / "balance.png").write_bytes(picture)
    (folder / "why.html").write_bytes(page(whys, pictures))
    (folder / "why.md").write_text(markdown(whys), encoding="utf-8")
    (folder / "why.json").write_text(json.dumps(as_json(whys), indent=1) + "\n", encoding="utf-8")
    say(console, f"\nwhy.html, why.md, why.json and the records: {folder}")


def _measured(
    path: Path, request: MeasureRequest, argv: Sequence[str], console: Console, job: Job, part: str
) -> Sequence[Record]:
    from unittest.mock import patch

    from runner.cli.measuring import measured_into
    from runner.plan.compilers import with_availability
    from runner.plan.probe import asking_for
    from runner.runs.why import asking, handover

    jobs = with_availability((job,), asking_for((job,)), skip=True)
    trace = {"TORCH_TRACE": str((path / handover.TRACE).absolute())} if part == asking.LOOK else {}
    with patch.dict(os.environ, trace):
        return measured_into(path / part, jobs, argv, console, request.where)
