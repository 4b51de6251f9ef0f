"""``--index``: reads every run of a folder and writes the folder's ``index.html``.

A run's ``summary.json`` is used where it is not older than the records and has
as many; otherwise the records themselves. Whatever is wrong with a run's
files, the run is in the list, with a sentence.
"""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any
from urllib.parse import quote

from harness.codec import from_json
from harness.schema import Scalar, Status
from runner.comparison import GroupSummary, Summary
from runner.errors import UsageError
from runner.labels import plain
from runner.record_file import CUT_SHORT, read_records
from runner.reports._index import Run, render_index
from runner.run_folder import RECORDS, RUN, write_whole

INDEX = "index.html"
REPORT = "report.html"
SUMMARY = "summary.json"
LONGEST_REASON = 200  # characters


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What the records of a run amount to."""

    groups: tuple[GroupSummary, ...] = ()
    statuses: tuple[str, ...] = ()
    environment: Mapping[str, Scalar]
    damaged_lines: int = 0


def write_index(folder: Path) -> str:
    """Writes ``folder/index.html``; returns a sentence on it. ``UsageError`` for a folder without runs."""
    if not folder.is_dir():
        raise UsageError(f"--index: there is no folder {folder}; give the folder that holds your runs")
    if (folder / RECORDS).is_file():
        raise UsageError(f"--index: {folder} is a run itself; give the folder that holds it")
    try:
        inside = sorted(path for path in folder.iterdir() if path.is_dir())
    except OSError as error:
        raise UsageError(f"--index: {folder} cannot be read ({error.strerror})") from None
    runs = [read_run(path) for path in inside if _is_run(path)]
    if not runs:
        raise UsageError(f"--index: there is no run in {folder}; give the folder that holds your runs")
    page = folder / INDEX
    try:
        write_whole(page, render_index(folder.resolve().name or str(folder), runs))
    except OSError as error:
        raise UsageError(f"--index: {page} cannot be written ({error.strerror})") from None
    damaged = sum(run.damaged for run in runs)
    count = "1 run" if len(runs) == 1 else f"{len(runs)} runs"
    return f"{count}{f', {damaged} damaged' if damaged else ''} -> {page}"


def _is_run(path: Path) -> bool:
    try:
        return (path / RECORDS).exists() or (path / RUN).exists()
    except OSError:  # a folder that may not be looked into: the list says so
        return True


def read_run(path: Path) -> Run:
    """One run. Never raises: what cannot be read is said in the run's ``state``, the rest is used."""
    run = Run(name=path.name, link=None, created=_oldest(path), state="")
    wrong: list[str] = []
    planned = 0
    try:
        plan, planned = _plan(path)
        run = replace(run, created=_created(plan) or run.created, command=_command(plan))
    except (OSError, ValueError) as error:
        wrong.append(_why(error))
    found = Found(environment={})
    try:
        found = _found(path)
    except (OSError, ValueError, RecursionError) as error:
        wrong.append(_why(error))
    if found.damaged_lines:
        what = "1 line" if found.damaged_lines == 1 else f"{found.damaged_lines} lines"
        wrong.append(f"{what} of {RECORDS} cannot be read")
    done = len(found.statuses)
    counted = [status for status in found.statuses if status != Status.SKIP.value]
    state = "complete" if done >= planned else f"unfinished: {done} of {planned} records"
    return replace(
        run,
        link=f"./{quote(os.fsencode(path.name))}/{REPORT}" if _is_file(path / REPORT) else None,
        machine=str(found.environment.get("device_name") or found.environment.get("cpu") or ""),
        torch=str(found.environment.get("torch") or ""),
        state=f"damaged: {'; '.join(dict.fromkeys(wrong))}" if wrong else state,
        damaged=bool(wrong),
        passed=sum(Status(status).passed for status in counted),
        total=len(counted),
        groups=found.groups,
    )


def _why(error: Exception) -> str:
    if isinstance(error, FileNotFoundError):
        return f"{Path(error.filename).name} is missing"
    if isinstance(error, OSError):
        return f"{Path(str(error.filename or '')).name} cannot be read ({error.strerror})"
    return plain(str(error))[:LONGEST_REASON]


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:
        return False


def _plan(path: Path) -> tuple[dict[str, Any], int]:
    """What is in ``run.json``, and how many records it promises. ``ValueError``, ``OSError``."""
    text = (path / RUN).read_bytes()
    try:
        plan = dict(json.loads(text))
        return plan, sum(len(list(job["candidates"])) for job in plan["jobs"])
    except (ValueError, KeyError, TypeError, RecursionError):
        raise ValueError(f"{RUN} is no plan, or was cut short") from None


def _created(plan: Mapping[str, Any]) -> datetime | None:
    try:
        found = datetime.fromisoformat(str(plan.get("created")))
    except ValueError:
        return None
    aware = found if found.tzinfo is not None else found.replace(tzinfo=timezone.utc)
    return aware.astimezone(timezone.utc)


def _oldest(path: Path) -> datetime:
    """When the folder's files began to be, for a run that does not say when it did."""
    seconds = 0.0
    for name in (RUN, RECORDS, ""):
        try:
            seconds = (path / name).stat().st_mtime
            break
        except OSError:
            continue
    return datetime.fromtimestamp(seconds, timezone.utc)


def _command(plan: Mapping[str, Any]) -> str:
    words = plan.get("command")
    return f"runner.py {shlex.join(map(str, words))}" if isinstance(words, list) else ""


def _found(path: Path) -> Found:
    records, summary = path / RECORDS, path / SUMMARY
    lines = [line for line in records.read_bytes().split(b"\n") if _counts(line)]
    try:
        if summary.stat().st_mtime_ns >= records.stat().st_mtime_ns:
            found = _from_summary(json.loads(summary.read_text(encoding="utf-8")))
            if len(found.statuses) == len(lines):
                return found
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        pass  # derived: the records say the same
    read = read_records(records)
    derived = _summarised(read.records)
    return replace(derived, damaged_lines=len(read.damage))


def _counts(line: bytes) -> bool:
    return bool(line.strip()) and not line.endswith(CUT_SHORT)


def _from_summary(value: Mapping[str, Any]) -> Found:
    return Found(
        groups=from_json(tuple[GroupSummary, ...], value["groups"]),
        statuses=tuple(Status(comparison["status"]).value for comparison in value["comparisons"]),
        environment=from_json(dict[str, Scalar], value["environment"]),
    )


def _summarised(records: Sequence[Any]) -> Found:
    from runner.derive import summarise

    summary: Summary = summarise(records)
    return Found(
        groups=summary.groups,
        statuses=tuple(_statuses(summary)),
        environment=summary.environment,
    )


def _statuses(summary: Summary) -> Iterable[str]:
    return (comparison.record.status.value for comparison in summary.comparisons)
