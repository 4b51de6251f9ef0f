"""``--bisect``: measures two environments in alternation, once or in a search, and prints what changed."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from harness.schema import Job
from runner.analysis.comparison import CONTROL
from runner.analysis.verdicts.between import LEAST_ACROSS
from runner.errors import UsageError
from runner.labels import plain
from runner.plan.environments.prepare import SameEnvironments
from runner.plan.environments.spec import EnvSpec
from runner.reports.parts.grid import say
from runner.runs.bisect.search import OPEN, SAME, ResultChange, name_of, search

if TYPE_CHECKING:
    from rich.console import Console

GOOD, BAD, CANNOT_JUDGE = 0, 1, 125  # as ``git bisect run`` reads them

Run = Callable[[Path, Sequence[EnvSpec], Collection[Job]], Mapping[str, ResultChange]]
"""Measures the jobs in two environments into a folder. Raises ``UsageError`` if one cannot be used."""


def followed(jobs: Sequence[Job]) -> dict[str, Job]:
    """The results to follow, and the job of each, in enough processes for a verdict."""
    jobs_of = {}
    for job in jobs:
        compilers = tuple(name for name in job.candidates if name != CONTROL) or (CONTROL,)
        # the two sides are processes of their own, and processes vary; 0: as many as the verdicts need
        processes = job.protocol.processes and max(LEAST_ACROSS, job.protocol.processes)
        protocol = replace(job.protocol, processes=processes)
        enough = replace(job, candidates=compilers, protocol=protocol)
        jobs_of.update({name_of(job, compiler): enough for compiler in compilers})
    return jobs_of


def judge(
    builds: Sequence[EnvSpec], jobs: Mapping[str, Job], folder: Path, console: Console, run: Run
) -> int:
    """Whether the second build is worse than the first, as the exit code that ``git bisect run`` reads."""
    try:
        changes = run(folder, builds, jobs.values())
    except UsageError as error:  # a build that cannot be used is skipped
        print(f"error: {plain(str(error))}", file=sys.stderr)
        return GOOD if isinstance(error, SameEnvironments) else CANNOT_JUDGE
    for name, change in changes.items():
        say(console, f"{name}: {change.text}")
    if any(change.worse for change in changes.values()):
        return BAD
    decided = {name for name, change in changes.items() if change.change != OPEN}
    return GOOD if decided >= jobs.keys() else CANNOT_JUDGE


def bisect(
    builds: Sequence[EnvSpec], jobs: Mapping[str, Job], folder: Path, console: Console, run: Run
) -> int:
    """Prints the first build that changes each result; returns 1 if a result has no answer."""
    say(console, f"{', '.join(build.name for build in builds)} -> {folder}")

    def measure(build: EnvSpec, names: Collection[str]) -> Mapping[str, ResultChange]:
        path = folder / f"{len(list(folder.iterdir())) + 1:02}-{build.name}"
        beside = f"{build.name} beside {builds[0].name}"
        try:
            changes = run(path, (builds[0], build), [jobs[name] for name in names])
        except UsageError as error:
            say(console, f"{beside} cannot be measured: {error}")
            raise
        for name in names:
            text = changes[name].text if name in changes else "no record"
            say(console, f"{beside}: {name}: {text} ({path.name})")
        return changes

    undecided = False
    for name, (change, window) in search(builds, list(jobs), measure).items():
        old, *between, new = (build.name for build in window)
        undecided |= change == OPEN or (change != SAME and bool(between))
        if change == OPEN:
            text = "not decided; use more rounds (-n) or processes (--processes)."
        elif change == SAME:
            text = f"no change from {old} to {new}."
        else:
            left = f" (not decided: {', '.join(between)})" if between else ""
            text = f"{change} with {new}, not with {old}{left}."
        say(console, f"{name}: {text}")
    return BAD if undecided else GOOD
