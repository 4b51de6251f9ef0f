"""``--bisect``: the first version of a package that changes the status or the speed of a model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from harness.settings import Given, Group, flag
from runner.cli.commands import job_command
from runner.cli.formats import formats_asked
from runner.errors import UsageError
from runner.plan.checks import run_config, where_asked
from runner.plan.config import RunConfig, Where

FLAG = flag(
    "--bisect",
    group=Group.ACTIONS,
    metavar="VERSIONS",
    help="find the first version that changes the status or the speed of the model of --only with the "
    "compiler of --compilers: torch==2.11.0..2.13.0, or a list torch==2.11.0,2.12.0,2.13.0. Each step "
    "measures two versions in alternation. For another package, name a torch too: "
    "'transformers==4.50.0..4.57.0 torch==2.13.0'",
)
CALLED_BY = (FLAG,)


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    versions: str
    config: RunConfig
    where: Where


def add_flags(add: Callable[..., None]) -> None:
    add(FLAG)


def parse(given: Given) -> Asked:
    formats_asked(given)
    config = run_config(given)
    if config.environments:
        raise UsageError("--bisect makes its own environments; leave --envs out")
    where = where_asked(given, config)
    if where.executor == "ray":
        raise UsageError("--bisect measures on this machine; leave --executor=ray out")
    return Asked(versions=given[FLAG.key], config=config, where=where)


def perform(asked: Asked, argv: Sequence[str]) -> int:
    from rich.console import Console

    from runner.cli.measuring import measure_missing
    from runner.runs.bisect.command import bisect

    return bisect(
        asked.versions, asked.config, asked.where, argv, Console(), run=measure_missing, reproduce=job_command
    )
