"""``--bisect``: versions of a package, how each result differs between two, and the one that changed it."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from packaging.version import InvalidVersion, Version

from harness.schema import Job, Record, of_environment
from runner.analysis.comparison import CONTROL, CandidatePair
from runner.analysis.derive import summarize
from runner.analysis.digits import speedup_text
from runner.analysis.estimate import Verdict
from runner.analysis.verdicts.between import LEAST_ACROSS
from runner.errors import UsageError
from runner.labels import case_name, plain, reason
from runner.plan.environments.prepare import SameEnvironments
from runner.plan.environments.spec import EnvSpec, environments_asked
from runner.reports.parts.grid import say

if TYPE_CHECKING:
    from rich.console import Console

SAME, SLOWER, FASTER = (verdict.value for verdict in (Verdict.SAME, Verdict.SLOWER, Verdict.FASTER))
STATUS, OPEN = "another status", "not decided"
OF_NEWER = {Verdict.SAME: SAME, Verdict.FASTER: SLOWER, Verdict.SLOWER: FASTER}  # of the verdict on the older
GOOD, BAD, CANNOT_JUDGE = 0, 1, 125  # as ``git bisect run`` reads them

EXAMPLE = "write torch==2.11.0..2.13.0, or torch==2.11.0,2.12.0,2.13.0"
FOLLOWED = re.compile(r"([A-Za-z0-9][A-Za-z0-9._-]*)==([^\s=]+(?:\.\.|,)[^\s=]+)")
PIP_TIMEOUT_S = 120.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultChange:
    """``worse``: slower, or it passed before and does not now."""

    change: str
    text: str
    worse: bool = False


Run = Callable[[Path, Sequence[EnvSpec], Collection[Job]], Mapping[str, ResultChange]]
"""Measures the jobs in two environments into a folder. Raises ``UsageError`` if one cannot be used."""


def name_of(job: Job, compiler: str) -> str:
    """``MLP_addition training float32 cpu, inductor``"""
    return plain(f"{case_name(job.case)} {job.case.mode.value} {job.dtype} {job.device}, {compiler}")


def result_changes(records: Sequence[Record], older: str, newer: str) -> dict[str, ResultChange]:
    """The change of each result with a record in both environments, by ``name_of``."""
    sides: dict[str, dict[str, Record]] = {}
    for record in records:
        sides.setdefault(_name(record), {})[record.env] = record
    every = summarize(records).pairs  # the older environment is first, as in the job's candidates
    pairs = {_name(p.first.record): p for p in every if _name(p.first.record) == _name(p.second.record)}
    complete = {name: both for name, both in sides.items() if {older, newer} <= both.keys()}
    return {name: _change(b[older], b[newer], pairs.get(name)) for name, b in complete.items()}


def _name(record: Record) -> str:
    return name_of(record.job, record.candidate.removesuffix(of_environment("", record.env)))


def _change(older: Record, newer: Record, pair: CandidatePair | None) -> ResultChange:
    was, now = older.status, newer.status
    if was != now:
        why = f", {newer.failure.kind}: {newer.failure.message}"[:120] if newer.failure else ""
        text = plain(f"{was.value} -> {now.value}{why}")
        return ResultChange(change=STATUS, text=text, worse=was.passed and not now.passed)
    if not (now.passed and newer.job.protocol.performance):  # without times, the status is the result
        return ResultChange(change=SAME, text=now.value)
    if pair is None or pair.speedup is None or pair.verdict is None:
        return ResultChange(change=OPEN, text=f"{now.value}, no speed")
    low, high = (end and 1 / end for end in (pair.ci_high, pair.ci_low))
    change = OF_NEWER.get(pair.verdict, OPEN)
    text = f"{now.value}, {speedup_text(1 / pair.speedup, low, high)} of its speed: {change}"
    return ResultChange(change=change, text=text, worse=change == SLOWER)


Build = TypeVar("Build")


def search(
    builds: Sequence[Build],
    names: Collection[str],
    measure: Callable[[Build, Collection[str]], Mapping[str, ResultChange]],
) -> dict[str, tuple[str, Sequence[Build]]]:
    """For each result the change, and the builds from the last without it to the first with it.

    Those between the two could not be decided. ``measure(build, names)``: these results, compared with the
    oldest build. Raises ``UsageError`` if the first or the last build cannot be used.
    """
    ends = measure(builds[-1], names)
    changes = {name: ends[name].change if name in ends else OPEN for name in names}
    changed = [name for name in names if changes[name] not in (SAME, OPEN)]

    @cache
    def at(place: int) -> Mapping[str, ResultChange]:
        try:
            return measure(builds[place], changed)
        except UsageError:
            return {}

    def narrowed(name: str, change: str) -> Sequence[Build]:
        low, high, left = 0, len(builds) - 1, [*range(1, len(builds) - 1)]
        while left:
            place = left.pop(len(left) // 2)
            result = at(place).get(name)
            if result is not None and result.change == change:
                high = place
            elif result is not None and (change == STATUS or result.change in (SAME, SLOWER, FASTER)):
                low = place
            left = [other for other in left if low < other < high]
        return builds[low : high + 1]

    return {name: (c, narrowed(name, c) if name in changed else builds) for name, c in changes.items()}


def followed(jobs: Sequence[Job]) -> dict[str, Job]:
    """The results to follow, and the job of each, in enough processes for a verdict."""
    jobs_of = {}
    for job in jobs:
        compilers = tuple(name for name in job.candidates if name != CONTROL) or (CONTROL,)
        # the two sides are processes of their own, and processes vary; 0: as many as the verdicts need
        processes = job.protocol.processes and max(LEAST_ACROSS, job.protocol.processes)
        protocol = replace(job.protocol, processes=processes)
        enough = replace(job, candidates=compilers, protocol=protocol)
        for name in (name_of(job, compiler) for compiler in compilers):
            if name in jobs_of:
                raise UsageError(f"--bisect: two models are called {name}; leave out one of them")
            jobs_of[name] = enough
    return jobs_of


def judge(names: Collection[str], console: Console, measure: Callable[[], Mapping[str, ResultChange]]) -> int:
    """Whether the second build is worse than the first, as the exit code that ``git bisect run`` reads."""
    try:
        changes = measure()
    except BrokenPipeError:  # nobody reads on: its code ends the bisection
        raise
    except (UsageError, OSError) as error:  # skipped: a folder with files, or a full disk, is no bad build
        print(f"error: {plain(str(error))}", file=sys.stderr)
        return GOOD if isinstance(error, SameEnvironments) else CANNOT_JUDGE
    for name, change in changes.items():
        say(console, f"{name}: {change.text}")
    if any(change.worse for change in changes.values()):
        return BAD
    decided = {name for name, change in changes.items() if change.change != OPEN}
    return GOOD if decided.issuperset(names) else CANNOT_JUDGE


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


# -- versions ------------------------------------------------------------------------


def builds_asked(text: str, available: Callable[[str], Sequence[str]]) -> tuple[EnvSpec, ...]:
    """An environment for each version, from the oldest on: ``torch-2.11.0``. Raises ``UsageError``."""
    followed = FOLLOWED.findall(text)
    if len(followed) != 1:
        what = "names no versions to choose from" if not followed else "follows two packages"
        raise UsageError(f"--bisect: {text!r} {what}; {EXAMPLE}")
    ((package, listed),) = followed
    if package != "torch" and "torch==" not in text:
        raise UsageError(f"--bisect: {text!r} does not say which torch; add torch==VERSION inside the quotes")
    versions = [version for version in re.split(r"\.\.|,", listed) if version]
    try:
        known = [Version(version) for version in versions]
    except InvalidVersion as error:
        raise UsageError(f"--bisect: {error}; {EXAMPLE}") from None
    if len(known) < 2 or known != sorted(set(known)):
        raise UsageError(f"--bisect: {listed!r}: name two or more versions, each once, the oldest first")
    if ".." in listed:
        low, high, listing = known[0], known[-1], available(package)
        # pip accepts a build such as 2.13.0+cpu for 2.13.0
        released = dict.fromkeys(Version(version.public) for version in sorted(map(Version, listing)))
        for end in (low, high):
            if end not in released:
                raise UsageError(f"--bisect: pip finds no {package} {end}; it finds {', '.join(listing[:8])}")
        unfinished = low.is_prerelease or high.is_prerelease  # between nightlies: nightlies, too
        versions = [str(v) for v in released if low <= v <= high and (unfinished or not v.is_prerelease)]
    environments = [f"{package}-{v}={text.replace(f'=={listed}', f'=={v}')}" for v in versions]
    return environments_asked(environments, None)


def pip_versions(package: str) -> list[str]:
    """The versions of ``pip index versions``, with the user's pip settings. Raises ``UsageError``."""
    command = [sys.executable, "-m", "pip", "index", "versions", package, "--disable-pip-version-check"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=PIP_TIMEOUT_S, check=True)
    except (subprocess.SubprocessError, OSError) as error:
        said = getattr(error, "stderr", None)  # bytes after a timeout
        text = said if isinstance(said, str) and said.strip() else str(error)
        why = reason(text.strip().splitlines()[-1])
        raise UsageError(f"--bisect: pip finds no versions of {package} ({why}); list them instead") from None
    lines = (line.partition("Available versions:") for line in done.stdout.splitlines())
    return [version.strip() for _, _, listed in lines if listed for version in listed.split(",")]
