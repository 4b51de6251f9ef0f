"""``--why``: explains the speed of a compiled step; ``--tune``: tries the settings that matter."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from harness.backends.settings.candidates import compiler_of
from harness.settings import Given, Group, flag
from runner.cli.actions.measure import ANOTHER, MeasureRequest, measured, planned
from runner.cli.formats import FORMAT
from runner.errors import UsageError
from runner.plan.compilers import COMPILERS
from runner.plan.config import RunConfig
from runner.plan.settings import row_at

DEFAULT = "inductor"
_action = partial(flag, group=Group.ACTIONS)
WHY = _action("--why", help="explain the speed of one compiler on the chosen models: docs/WHY.md")
TUNE = _action(
    "--tune", help="try the settings that matter for the chosen models, and keep what wins: docs/WHY.md"
)
FLAGS = (WHY,)


def parse(given: Given) -> MeasureRequest:
    action = "--why" if WHY.key in given else "--tune"
    for unused in (FORMAT, *(row_at(RunConfig, name).flags[0] for name in ("tags", "skip_unavailable"))):
        if unused.key in given:
            raise UsageError(f"{unused.long} does nothing with {action}; leave it out")
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
    return replace(request, config=replace(config, compilers=named), asks=action.removeprefix("--"))


def perform(request: MeasureRequest, argv: Sequence[str]) -> int:
    from rich.console import Console

    if request.asks == "tune":  # a compiler that takes no settings is refused before anything is measured
        from runner.plan.jobs import plan
        from runner.plan.probe import possible_here
        from runner.runs.why.asking import tuning
        from runner.runs.why.explain import with_setting

        jobs = possible_here(request.config, plan(request.config), instead=ANOTHER)
        tried = (replace(job, candidates=(with_setting(job.candidates[0], tuning(job)[0]),)) for job in jobs)
        possible_here(request.config, tuple(tried), instead=ANOTHER)
    return measured(request, argv, Console())[0]
