"""``--bisect``: makes the environments, measures them two by two, prints and keeps the evidence."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.codec import to_json
from harness.schema import Job
from runner.bisect.evidence import evidence
from runner.bisect.search import Evidence, Found, Measure, search
from runner.bisect.versions import FLAG, Available, Versions, pip_versions, versions_asked
from runner.comparison import CONTROL
from runner.digits import p_text, speedup_text
from runner.environments.spec import Asked
from runner.errors import UsageError
from runner.labels import plain

if TYPE_CHECKING:
    from rich.console import Console

    from runner.config import RunConfig, Where

OK, CANNOT_TELL = 0, 1
RESULT = "bisect.json"
LONGEST_NAME = 32  # of an environment


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """What is followed: one job, and the compiler that is to be measured in each version."""

    job: Job
    compiler: str


def bisect(
    text: str,
    config: RunConfig,
    where: Where,
    argv: Sequence[str],
    console: Console,
    *,
    available: Available = pip_versions,
    measure: Measure | None = None,
) -> int:
    """Prints the first version that differs, and why; 1 where that cannot be told. ``UsageError``."""
    from runner.plan import plan

    subject = _subject(plan(config))
    asked = versions_asked(text, available)
    folder = _folder(config.output_dir, asked)
    _say(console, f"{asked.package}: {', '.join(asked.versions)} -> {folder}")
    if measure is None:
        measure = _Steps(asked, subject, config, where, argv, folder, console)
    found = search(asked.versions, measure, lambda one: _say(console, _line(one)))
    _keep(folder, asked, subject, found)
    for line in conclusion(asked, subject, found):
        _say(console, line)
    return OK if found.sure and found.confirmed is not False else CANNOT_TELL


def _subject(jobs: Sequence[Job]) -> Subject:
    """``UsageError`` where the flags choose more than one result."""
    if len(jobs) != 1:
        what = "no model" if not jobs else f"{len(jobs)} models, devices or precisions"
        raise UsageError(f"{FLAG}: the flags choose {what}; name one, with --only")
    compilers = [name for name in jobs[0].candidates if name != CONTROL] or [CONTROL]
    if len(compilers) > 1:
        raise UsageError(
            f"{FLAG}: one compiler is followed, not {', '.join(compilers)}; use --compilers=NAME"
        )
    return Subject(job=replace(jobs[0], candidates=(compilers[0],)), compiler=compilers[0])


def _folder(wanted: Path | None, asked: Versions) -> Path:
    """A new folder for the runs. ``UsageError`` for one that holds anything."""
    stamp = datetime.now(timezone.utc).strftime("%Y%m%dT%H%M%S")
    path = wanted or Path("logs") / f"{stamp}-bisect-{asked.package}"
    try:
        path.mkdir(parents=True, exist_ok=True)
        if any(path.iterdir()):
            raise UsageError(f"--output-dir: {path} holds files already; name a new folder")
    except OSError as error:
        raise UsageError(f"--output-dir: {path} cannot be written ({error.strerror})") from None
    return path.resolve()


class _Steps:
    """Measures two versions in alternation, each time in new processes and a folder of its own."""

    def __init__(
        self,
        asked: Versions,
        subject: Subject,
        config: RunConfig,
        where: Where,
        argv: Sequence[str],
        folder: Path,
        console: Console,
    ) -> None:
        self._asked, self._subject, self._config = asked, subject, config
        self._where, self._argv, self._folder, self._console = where, argv, folder, console
        self._count = 0

    def __call__(self, older: str, newer: str) -> Evidence:
        from runner.app import measure_missing
        from runner.environments.prepare import prepared
        from runner.executors import opened
        from runner.run_folder import RunFolder

        both = [self._environment(version) for version in (older, newer)]
        jobs, facts = prepared(both, [self._subject.job], skip=True)
        self._count += 1
        path = self._folder / f"{self._count:02}-{both[0].name}-{both[1].name}"
        with opened(self._where, jobs) as executor:
            folder = RunFolder.create(path, jobs, self._argv, facts)
            with folder.claimed():
                if measure_missing(folder, jobs, self._console, executor):
                    raise KeyboardInterrupt
        first, second = (one.name for one in both)
        found = evidence(folder.read().records, self._subject.compiler, first, second, path.name)
        return replace(found, against=older, version=newer)

    def _environment(self, version: str) -> Asked:
        words = self._asked.requirements(version)
        name = re.sub(r"[^A-Za-z0-9_.+-]+", "-", f"{self._asked.package}-{version}")[-LONGEST_NAME:]
        return Asked(name=name.lstrip("-._+"), text=" ".join(words), requirements=words)


def _line(one: Evidence) -> str:
    """``2.12.0 beside 2.11.0: pass, 0.93x [0.91, 0.95] of its speed, p <0.001, 30 pairs (03-...)``"""
    status = one.status if one.status == one.status_against else f"{one.status_against} -> {one.status}"
    parts = [status]
    if one.factor is not None:
        factor = one.factor
        parts.append(f"{speedup_text(factor.factor, factor.low, factor.high)} of its speed")
        parts += [f"p {p_text(factor.p_value)}", f"{one.rounds} pairs"]
    if one.failure and one.status != one.status_against:
        parts.append(one.failure[:120])
    return plain(
        f"{one.version} beside {one.against}: {', '.join(parts)}{f' ({one.folder})' * bool(one.folder)}"
    )


def conclusion(asked: Versions, subject: Subject, found: Found) -> list[str]:
    """The answer in sentences."""
    who = plain(f"{subject.job.case.name} with {subject.compiler}")
    lines = [f"{version} was left out: {plain(why)}" for version, why in found.skipped.items()]
    first, last = asked.versions[0], asked.versions[-1]
    if not found.what:
        ends = found.steps[0]
        lines.append(f"{who} is the same with {asked.package} {first} and {last} ({_line(ends)}).")
        return lines
    between = f"between {asked.package} {found.last_old} and {found.first_new}"
    if not found.sure:
        lines.append(
            f"The {found.what} of {who} changes {between}, but the versions between cannot be told apart: "
        )
        lines[-1] += "measure more rounds (-n), or several processes (--processes)."
        return lines
    lines.append(
        f"The {found.what} of {who} changes {between}: the first version with it is {found.first_new}."
    )
    if found.confirmed is False:
        lines.append(
            "Measured side by side, these two do not differ so: the change may have come in small steps."
        )
    return lines


def _keep(folder: Path, asked: Versions, subject: Subject, found: Found) -> None:
    from runner.run_folder import write_whole

    whole: dict[str, Any] = {
        "schema_version": 1,
        "package": asked.package,
        "versions": list(asked.versions),
        "beside": list(asked.beside),
        "model": subject.job.case.name,
        "compiler": subject.compiler,
        **to_json(found),
    }
    write_whole(folder / RESULT, (json.dumps(whole, indent=1, allow_nan=False) + "\n").encode())


def _say(console: Console, text: str) -> None:
    console.print(text, markup=False, highlight=False, soft_wrap=True)
