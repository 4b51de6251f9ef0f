"""``--bisect``: creates the environments, measures them in pairs, prints and stores the evidence."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.codec import to_json
from harness.protocol import AUTO
from harness.schema import Job
from runner.analysis.comparison import CONTROL
from runner.analysis.digits import p_text, speedup_text
from runner.analysis.verdicts.between import LEAST_ACROSS
from runner.errors import UsageError
from runner.labels import plain
from runner.plan.environments.spec import Asked
from runner.runs.bisect.evidence import evidence
from runner.runs.bisect.search import Evidence, Measure, SearchResult, search
from runner.runs.bisect.versions import FLAG, Available, Versions, pip_versions, versions_asked

if TYPE_CHECKING:
    from rich.console import Console

    from runner.engine.executors import Executor
    from runner.engine.job_run import Reproduce
    from runner.plan.config import RunConfig, Where
    from runner.store.run_folder import RunFolder

    Run = Callable[[RunFolder, Sequence[Job], Console, Executor], bool]
    """Measures the jobs into the folder; whether it was stopped early."""

OK, CANNOT_TELL = 0, 1
RESULT = "bisect.json"
LONGEST_NAME = 32  # of an environment


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """One job, and the compiler to measure in each version."""

    job: Job
    compiler: str


def bisect(
    text: str,
    config: RunConfig,
    where: Where,
    argv: Sequence[str],
    console: Console,
    *,
    run: Run | None = None,
    reproduce: Reproduce | None = None,
    available: Available = pip_versions,
    measure: Measure | None = None,
) -> int:
    """Prints the first version that differs, with evidence; returns 1 if it is uncertain. ``UsageError``."""
    from runner.plan.jobs import plan
    from runner.reports.parts.grid import say
    from runner.store.run_folder import new_folder

    subject = _subject(plan(config))
    asked = versions_asked(text, available)
    folder = new_folder(config.output_dir, f"bisect-{asked.package}").resolve()
    say(console, f"{asked.package}: {', '.join(asked.versions)} -> {folder}")
    if measure is None:
        assert run is not None
        assert reproduce is not None
        measure = _Steps(asked, subject, run, reproduce, where, argv, folder, console)
    result = search(asked.versions, measure, lambda step: say(console, _line(step)))
    _keep(folder, asked, subject, result)
    for line in conclusion(asked, subject, result):
        say(console, line)
    return OK if result.sure and result.confirmed is not False else CANNOT_TELL


def _subject(jobs: Sequence[Job]) -> Subject:
    """Raises ``UsageError`` if the flags select more than one result."""
    if len(jobs) != 1:
        what = "no model" if not jobs else f"{len(jobs)} models, devices or precisions"
        raise UsageError(f"{FLAG}: the flags choose {what}; name one, with --only")
    compilers = [name for name in jobs[0].candidates if name != CONTROL] or [CONTROL]
    if len(compilers) > 1:
        raise UsageError(
            f"{FLAG}: one compiler is followed, not {', '.join(compilers)}; use --compilers=NAME"
        )
    protocol = jobs[0].protocol
    if protocol.processes != AUTO:  # the two sides are processes of their own, and processes vary
        protocol = replace(protocol, processes=max(LEAST_ACROSS, protocol.processes))
    job = replace(jobs[0], candidates=(compilers[0],), protocol=protocol)
    return Subject(job=job, compiler=compilers[0])


class _Steps:
    """Measures two versions in alternation, each time in new processes and a folder of its own."""

    def __init__(
        self,
        asked: Versions,
        subject: Subject,
        run: Run,
        reproduce: Reproduce,
        where: Where,
        argv: Sequence[str],
        folder: Path,
        console: Console,
    ) -> None:
        self._asked, self._subject, self._run, self._reproduce = asked, subject, run, reproduce
        self._where, self._argv, self._folder, self._console = where, argv, folder, console
        self._count = 0

    def __call__(self, older: str, newer: str) -> Evidence:
        from runner.engine.executors.choice import opened
        from runner.plan.environments.prepare import prepared
        from runner.store.run_folder import RunFolder

        both = [self._environment(version) for version in (older, newer)]
        jobs, facts = prepared(both, [self._subject.job], skip=True)
        self._count += 1
        path = self._folder / f"{self._count:02}-{both[0].name}-{both[1].name}"
        with opened(self._where, jobs, self._reproduce) as executor:
            folder = RunFolder.create(path, jobs, self._argv, facts)
            with folder.claimed():
                if self._run(folder, jobs, self._console, executor):
                    raise KeyboardInterrupt
        first, second = (one.name for one in both)
        found = evidence(folder.read().records, self._subject.compiler, first, second, path.name)
        return replace(found, against=older, version=newer)

    def _environment(self, version: str) -> Asked:
        words = self._asked.requirements(version)
        name = re.sub(r"[^A-Za-z0-9_.+-]+", "-", f"{self._asked.package}-{version}")[-LONGEST_NAME:]
        return Asked(name=name.lstrip("-._+"), text=" ".join(words), requirements=words)


def _line(step: Evidence) -> str:
    """``2.12.0 beside 2.11.0: pass, 0.93x [0.91, 0.95] of its speed, p <0.001, 30 pairs (03-...)``"""
    status = step.status if step.status == step.status_against else f"{step.status_against} -> {step.status}"
    parts = [status]
    if step.speed is not None:
        factor = step.speed
        parts.append(f"{speedup_text(factor.factor, factor.low, factor.high)} of its speed")
        parts += [f"p {p_text(factor.p_value)}", f"{step.rounds} pairs"]
    if step.failure and step.status != step.status_against:
        parts.append(step.failure[:120])
    return plain(
        f"{step.version} beside {step.against}: {', '.join(parts)}{f' ({step.folder})' * bool(step.folder)}"
    )


def conclusion(asked: Versions, subject: Subject, result: SearchResult) -> list[str]:
    """The answer in sentences."""
    who = plain(f"{subject.job.case.name} with {subject.compiler}")
    lines = [f"{version} was left out: {plain(why)}" for version, why in result.skipped.items()]
    first, last = asked.versions[0], asked.versions[-1]
    if not result.what:
        ends = result.steps[0]
        lines.append(f"{who} does not change from {asked.package} {first} to {last} ({_line(ends)}).")
        return lines
    between = f"between {asked.package} {result.last_old} and {result.first_new}"
    if not result.sure:
        lines.append(
            f"The {result.what} of {who} changes {between}, but the versions between cannot be "
            "distinguished: measure more rounds (-n), or several processes (--processes)."
        )
        return lines
    lines.append(
        f"The {result.what} of {who} changes {between}: the first version with it is {result.first_new}."
    )
    if result.confirmed is False:
        lines.append(
            "Measured together, these two versions do not show this change: it may have come in small steps."
        )
    return lines


def _keep(folder: Path, asked: Versions, subject: Subject, result: SearchResult) -> None:
    from runner.store.run_folder import write_whole

    whole: dict[str, Any] = {
        "schema_version": 1,
        "package": asked.package,
        "versions": list(asked.versions),
        "beside": list(asked.beside),
        "model": subject.job.case.name,
        "compiler": subject.compiler,
        **to_json(result),
    }
    write_whole(folder / RESULT, (json.dumps(whole, indent=1, allow_nan=False) + "\n").encode())
