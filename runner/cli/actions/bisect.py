"""``--bisect``: the first version of a package that changes a model, or a step of ``git bisect run``."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from harness.settings import Given, Group, flag
from runner.cli.actions.measure import refuse_unused
from runner.cli.exit_codes import OK
from runner.errors import UsageError
from runner.plan.checks import run_config, where_asked
from runner.plan.config import RunConfig, Where
from runner.plan.settings import row_at

if TYPE_CHECKING:
    from harness.schema import Job
    from runner.plan.environments.spec import EnvSpec
    from runner.runs.bisect import ResultChange

BUILDS = "envs"
FLAG = flag(
    "--bisect=VERSIONS",
    group=Group.ACTIONS,
    nargs="?",
    const=BUILDS,
    help="find the first version that changes a model, such as in torch==2.11.0..2.13.0: docs/HOWTO.md",
)
FLAGS = (FLAG,)


def parse(given: Given) -> tuple[str, RunConfig, Where]:
    refuse_unused(given, FLAG.long)
    for path in ("extras.localize", "extras.shapes", "protocol.isolate"):
        other = row_at(RunConfig, path).flags[0]
        if other.key in given:
            raise UsageError(f"{FLAG.long} times two environments in the same rounds; leave {other.long} out")
    config, versions = run_config(given), given[FLAG.key]
    if versions != BUILDS and config.environments:
        raise UsageError("--bisect VERSIONS makes its own environments; leave --envs out")
    if versions == BUILDS and len(config.environments) != 2:
        raise UsageError(
            "--bisect: name versions, as torch==2.11.0..2.13.0, or two --envs, the good one first"
        )
    where = where_asked(given, config)
    if where.executor == "ray":
        raise UsageError("--bisect measures on this machine; leave --executor=ray out")
    return versions, config, where


def perform(request: tuple[str, RunConfig, Where], argv: Sequence[str]) -> int:
    from rich.console import Console

    from runner.cli.measuring import measured_into
    from runner.plan.environments.prepare import prepared
    from runner.plan.jobs import plan
    from runner.plan.partition import our_part
    from runner.runs.bisect import (
        CANNOT_JUDGE,
        bisect,
        builds_asked,
        followed,
        judge,
        pip_versions,
        result_changes,
    )
    from runner.store.run_folder import new_folder

    def run(path: Path, both: Sequence[EnvSpec], jobs: Collection[Job]) -> Mapping[str, ResultChange]:
        there, facts = prepared(both, list({job.key: job for job in jobs}.values()), skip=True)
        records = measured_into(path, there, argv, console, where, **facts)
        return result_changes(records, *(build.name for build in both))

    versions, config, where = request
    jobs, console = followed(our_part(config.partition, plan(config))), Console()
    if not jobs:
        return OK if versions != BUILDS else CANNOT_JUDGE

    def folder() -> Path:
        return new_folder(config.output_dir, "bisect").resolve()

    if versions == BUILDS:
        return judge(jobs, console, lambda: run(folder(), config.environments, jobs.values()))
    builds = builds_asked(versions, pip_versions)
    return bisect(builds, jobs, folder(), console, run)
