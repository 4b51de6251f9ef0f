"""Reads the runs of a folder. Numbers come from ``summary.json``, or from the records if they are newer."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any
from urllib.parse import quote

from harness.declared import finite
from harness.schema import Status
from runner.analysis.derive import summarize
from runner.analysis.digits import speedup_text
from runner.errors import UsageError
from runner.labels import counted, plain, reason, suite_labels
from runner.reports import summary_json
from runner.reports.parts.sections import compiler_name
from runner.store.invocation import program
from runner.store.record_file import CUT_SHORT
from runner.store.run_folder import RECORDS, read_run
from runner.store.run_json import RUN, read_run_json

REPORT = "report.html"
WHAT = "give the folder that holds your runs"
WRONG = (ValueError, KeyError, TypeError, AttributeError, RecursionError)  # of a file with other content


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """The averages of one compiler over the models of one ``what``: suite, mode, precision and device."""

    what: str
    suite: str
    compiler: str
    passed: int
    total: int
    speedup: float | None = None  # geometric mean, with its 95 % interval over models
    low: float | None = None
    high: float | None = None
    compile_s: float | None = None
    memory: float | None = None

    @property
    def name(self) -> str:
        return compiler_name(self.compiler)

    @property
    def text(self) -> str:
        """``11 of 12 passed, 1.50x [1.45, 1.55]``"""
        speedup = "" if self.speedup is None else f", {speedup_text(self.speedup, self.low, self.high)}"
        return f"{self.passed} of {self.total} passed{speedup}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Numbers:
    """``statuses``: of every counted result, by its name."""

    groups: tuple[Group, ...] = ()
    statuses: Mapping[str, Status]
    torch: str = ""
    machine: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """``state``: "complete", or what is missing or wrong. ``link``: to its report, relative to the folder."""

    name: str
    created: datetime
    command: str
    tags: tuple[str, ...]
    merged_from: tuple[str, ...]
    numbers: Numbers
    state: str
    damaged: bool
    link: str | None


def read_runs(folder: Path) -> list[Run]:
    """The runs of the folder, oldest first, without the parts of merged runs. Raises ``UsageError``."""
    try:
        if not folder.is_dir():
            there = "is a file" if folder.exists() else "does not exist"
            raise UsageError(f"--history: {folder} {there}; {WHAT}")
        if _is_run(folder):
            raise UsageError(f"--history: {folder} is a run itself; {WHAT}")
        runs = [_run(path) for path in folder.iterdir() if path.is_dir() and _is_run(path)]
    except OSError as error:
        raise UsageError(f"--history: {folder} cannot be read ({error.strerror})") from None
    if not runs:
        raise UsageError(f"--history: there is no run in {folder}; {WHAT}")
    parts = {name for run in runs for name in run.merged_from}
    whole = [run for run in runs if run.name not in parts]
    return sorted(whole or runs, key=lambda run: (run.created, run.name))


def _is_run(path: Path) -> bool:
    try:
        return (path / RECORDS).exists() or (path / RUN).exists()
    except OSError:  # a folder without read permission; the list shows this
        return True


def _run(path: Path) -> Run:
    """One run. Never raises: ``state`` names the files that cannot be read."""
    wrong: list[str] = []
    about, numbers, planned, done = dict[str, Any](), Numbers(statuses={}), 0, 0
    try:
        about = read_run_json(path)
        planned = sum(len(list(job["candidates"])) for job in about["jobs"])
    except (OSError, *WRONG) as error:
        wrong.append(_why(error, f"{RUN} is no plan, or was cut short"))
    try:
        lines = (path / RECORDS).read_bytes().split(b"\n")
        done = sum(bool(line.strip()) and not line.endswith(CUT_SHORT) for line in lines)
        numbers = _stored(path, done) or _derived(path, wrong)
    except (OSError, *WRONG) as error:
        wrong.append(_why(error, reason(error)))
    state = "complete" if done >= planned else f"unfinished: {done} of {planned} records"
    words = about.get("command")
    origins = [origin for origin in _listed(about.get("merged_from")) if isinstance(origin, dict)]
    return Run(
        name=plain(path.name),
        created=_created(about, path),
        command=plain(shlex.join((*program(), *map(str, words)))) if isinstance(words, list) else "",
        tags=tuple(plain(tag) for tag in _listed(about.get("tags")) if isinstance(tag, str)),
        merged_from=tuple(plain(Path(str(origin.get("folder", ""))).name) for origin in origins),
        numbers=numbers,
        state=plain(f"damaged: {'; '.join(dict.fromkeys(wrong))}" if wrong else state),
        damaged=bool(wrong),
        link=f"./{quote(os.fsencode(path.name))}/{REPORT}" if _has(path / REPORT) else None,
    )


def _stored(path: Path, records: int) -> Numbers | None:
    """The numbers of ``summary.json``; None if it is missing, of another version, or older than a record."""
    with contextlib.suppress(OSError, *WRONG):
        stored = json.loads((path / summary_json.FILE).read_text(encoding="utf-8"))
        if stored["schema_version"] == summary_json.SCHEMA_VERSION and len(stored["comparisons"]) == records:
            return _numbers(stored)
    return None


def _derived(path: Path, wrong: list[str]) -> Numbers:
    run = read_run(path / RECORDS)
    if run.damage:
        wrong.append(f"{counted(run.unused, 'line')} of {RECORDS} cannot be read")
    if not run.records:
        return Numbers(statuses={})
    return _numbers(json.loads(summary_json.render(summarize(run.records))[summary_json.FILE]))


def _numbers(summary: Mapping[str, Any]) -> Numbers:
    facts = summary["environment"]
    suites = suite_labels(row["suite"] for row in (*summary["comparisons"], *summary["groups"]))
    statuses = {}
    for row in summary["comparisons"]:
        status = Status(row["status"])
        if status.counted:
            words = [row[name] for name in ("model", "mode", "dtype", "device", "scale")]
            name = " ".join((suites[row["suite"]], *words, *row["changes"], row["candidate"]))
            statuses[plain(name)] = status
    return Numbers(
        groups=tuple(_group(row, suites[row["suite"]]) for row in summary["groups"]),
        statuses=statuses,
        torch=plain(str(facts.get("torch") or "")),
        machine=plain(str(facts.get("device_name") or facts.get("cpu") or "")),
    )


def _group(row: Mapping[str, Any], suite: str) -> Group:
    return Group(
        what=plain(", ".join((suite, row["mode"], row["dtype"], row["device"]))),
        suite=suite,
        compiler=plain(row["compiler"]),
        passed=int(row["passed"]),
        total=int(row["total"]),
        speedup=finite(row["geomean_speedup"]),
        low=finite(row["geomean_low"]),
        high=finite(row["geomean_high"]),
        compile_s=finite(row["mean_compilation_latency_s"]),
        memory=finite(row["mean_memory_ratio"]),
    )


def _listed(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def _why(error: Exception, otherwise: str) -> str:
    if isinstance(error, FileNotFoundError):
        return f"{Path(error.filename).name} is missing"
    if isinstance(error, OSError):
        return f"{Path(str(error.filename or '')).name} cannot be read ({error.strerror})"
    return otherwise


def _has(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:
        return False


def _created(about: Mapping[str, Any], path: Path) -> datetime:
    """The start that the run states, or the time of its files."""
    with contextlib.suppress(ValueError):
        created = datetime.fromisoformat(str(about.get("created")))
        return (created if created.tzinfo else created.replace(tzinfo=timezone.utc)).astimezone(timezone.utc)
    for name in (RUN, RECORDS, ""):
        with contextlib.suppress(OSError):
            return datetime.fromtimestamp((path / name).stat().st_mtime, timezone.utc)
    return datetime.fromtimestamp(0, timezone.utc)
