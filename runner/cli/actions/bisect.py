"""``--bisect``: the first version of a package that changes a model, or a step of ``git bisect run``."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from harness.settings import Given, Group, flag
from runner.cli.commands import job_command
from runner.cli.formats import formats_asked
from runner.errors import UsageError
from runner.plan.checks import run_config, where_asked
from runner.plan.config import RunConfig, Where

if TYPE_CHECKING:
    from harness.schema import Job
    from runner.plan.environments.spec import EnvSpec
    from runner.runs.bisect.search import ResultChange

BUILDS = "envs"
FLAG = flag(
    "--bisect",
    group=Group.ACTIONS,
    nargs="?",
    const=BUILDS,
    metavar="VERSIONS",
    help="find the first version that changes a model, such as in torch==2.11.0..2.13.0: docs/HOWTO.md",
)
FLAGS = (FLAG,)


BisectRequest = tuple[str, RunConfig, Where]


def parse(given: Given) -> BisectRequest:
    formats_asked(given)
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


def perform(request: BisectRequest, argv: Sequence[str]) -> int:
    from rich.console import Console

    from runner.cli.measuring import measure_missing
    from runner.engine.executors.choice import opened
    from runner.plan.environments.prepare import prepared
    from runner.plan.jobs import plan
    from runner.runs.bisect.command import bisect, followed, judge
    from runner.runs.bisect.search import result_changes
    from runner.runs.bisect.versions import builds_asked, pip_versions
    from runner.store.run_folder import RunFolder, new_folder

    def run(path: Path, both: Sequence[EnvSpec], jobs: Collection[Job]) -> Mapping[str, ResultChange]:
        there, facts = prepared(both, list({job.key: job for job in jobs}.values()), skip=True)
        with opened(where, there, job_command) as executor:
            folder = RunFolder.create(path, there, argv, facts)
            with folder.claimed():
                if measure_missing(folder, there, console, executor):
                    raise KeyboardInterrupt
        return result_changes(folder.read().records, *(build.name for build in both))

    versions, config, where = request
    jobs, console = followed(plan(config)), Console()
    if versions == BUILDS:
        return judge(config.environments, jobs, new_folder(config.output_dir, "bisect"), console, run)
    builds = builds_asked(versions, pip_versions)
    return bisect(builds, jobs, new_folder(config.output_dir, "bisect").resolve(), console, run)
