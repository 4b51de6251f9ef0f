"""``--bisect``: measures two environments in alternation, once or in a search, and prints what changed."""

from __future__ import annotations

import re
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
from runner.plan.environments.spec import Asked
from runner.reports.parts.grid import say
from runner.runs.bisect.search import OPEN, SAME, ResultChange, name_of, search

if TYPE_CHECKING:
    from rich.console import Console

GOOD, BAD, CANNOT_JUDGE = 0, 1, 125  # as ``git bisect run`` reads them

Run = Callable[[Path, Sequence[Asked], Collection[Job]], Mapping[str, ResultChange]]
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


def judge(builds: Sequence[Asked], jobs: Mapping[str, Job], folder: Path, console: Console, run: Run) -> int:
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
    packages: tuple[str, tuple[str, ...], str],
    jobs: Mapping[str, Job],
    folder: Path,
    console: Console,
    run: Run,
) -> int:
    """Prints the first version that changes each result; returns 1 if a result has no answer."""
    package, versions, beside = packages
    say(console, f"{package}: {', '.join(versions)} -> {folder}")

    def environment(version: str) -> Asked:
        words = (f"{package}=={version}", *beside.split())
        name = re.sub(r"[^A-Za-z0-9_.+-]+", "-", f"{package}-{version}")[-32:].lstrip("-._+")
        return Asked(name=name, text=" ".join(words), requirements=words)

    def measure(version: str, names: Collection[str]) -> Mapping[str, ResultChange]:
        path = folder / f"{len(list(folder.iterdir())) + 1:02}-{environment(version).name}"
        try:
            both = environment(versions[0]), environment(version)
            changes = run(path, both, [jobs[name] for name in names])
        except UsageError as error:
            say(console, f"{version} beside {versions[0]} cannot be measured: {error}")
            raise
        for name in names:
            text = changes[name].text if name in changes else "no record"
            say(console, f"{version} beside {versions[0]}: {name}: {text} ({path.name})")
        return changes

    answers = search(versions, list(jobs), measure)
    for name, (change, window) in answers.items():
        say(console, f"{name}: {_sentence(change, package, window)}")
    undecided = (c == OPEN or (c != SAME and len(window) > 2) for c, window in answers.values())
    return BAD if any(undecided) else GOOD


def _sentence(change: str, package: str, window: Sequence[str]) -> str:
    old, new, between = f"{package} {window[0]}", f"{package} {window[-1]}", ", ".join(window[1:-1])
    if change == SAME:
        return f"no change from {old} to {new}."
    if change == OPEN:
        return "not decided; use more rounds (-n) or processes (--processes)."
    return f"{change} with {new}, not with {old}{f' (not decided: {between})' if between else ''}."
