"""Reads the runs of a folder. Numbers come from ``summary.json``, or from the records if they are newer."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import Any
from urllib.parse import quote

from harness.declared import finite
from harness.schema import STOPPED, Status
from runner.analysis.derive import summarize
from runner.analysis.digits import speedup_text
from runner.errors import UsageError
from runner.labels import counted, plain, reason, suite_labels
from runner.reports import summary_json
from runner.reports.parts.sections import compiler_name
from runner.store.invocation import program
from runner.store.record_file import CUT_SHORT
from runner.store.run_folder import RECORDS, RUN, listed, read_run, read_run_json

REPORT = "report.html"
WHAT = "give the folder that holds your runs"
STOPPED_FIELD = b'"rounds_ended": "%s"' % STOPPED.encode()  # as a line has it: a quote in a text is escaped
WRONG = (ValueError, KeyError, TypeError, AttributeError, RecursionError)  # of a file with other content


NUMBERS = (
    *("passed", "total", "geomean_speedup", "geomean_low", "geomean_high"),
    *("mean_compilation_latency_s", "mean_memory_ratio"),
)
"""The numbers of a group that are shown, as ``summary.json`` names them."""

Group = Mapping[str, Any]
"""The averages of one compiler over the models of one ``what``: suite, mode, precision and device.

``suite``, ``compiler``, ``checked`` and ``NUMBERS`` are those of ``summary.json``. ``name`` and ``text`` are
for people: ``11 of 12 passed, 1.50x [1.45, 1.55]``.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """``state``: "complete", or what is missing or wrong. ``link``: to its report, relative to the folder.

    ``merged_from``: the names of its parts, and when each began, if known. ``statuses``: of every counted
    result, by its name.
    """

    name: str
    created: datetime
    command: str
    tags: tuple[str, ...]
    merged_from: tuple[tuple[str, datetime | None], ...]
    state: str
    damaged: bool
    link: str | None
    groups: tuple[Group, ...] = ()
    statuses: Mapping[str, Status] = field(default_factory=dict)
    torch: str = ""
    machine: str = ""


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
    parts = {part for run in runs for part in run.merged_from}
    whole = [run for run in runs if parts.isdisjoint({(run.name, run.created), (run.name, None)})]
    return sorted(whole or runs, key=lambda run: (run.created, run.name))


def _is_run(path: Path) -> bool:
    return _there(path / RECORDS) or _there(path / RUN)


def _there(path: Path) -> bool:
    try:
        return path.exists()
    except OSError:  # in a folder without read permission; the list shows this
        return True


def _run(path: Path) -> Run:
    """One run. Never raises: ``state`` names the files that cannot be read."""
    wrong: list[str] = []
    about, numbers, planned, done = dict[str, Any](), dict[str, Any](), 0, 0
    try:
        about = read_run_json(path)
        planned = sum(len(list(job["candidates"])) for job in about["jobs"])
    except (OSError, *WRONG) as error:
        wrong.append(_why(error, f"{RUN} is no plan, or was cut short"))
    try:
        lines = (path / RECORDS).read_bytes().split(b"\n")
        records = [line for line in lines if line.strip() and not line.endswith(CUT_SHORT)]
        done = sum(STOPPED_FIELD not in line for line in records)
        numbers = _stored(path, len(records)) or _derived(path, wrong)
    except (OSError, *WRONG) as error:
        wrong.append(_why(error, reason(error)))
    state = "complete" if done >= planned else f"unfinished: {done} of {planned} records"
    origins = listed(about, "merged_from", dict)
    words = [str(word) for word in listed(about, "command", object)]
    return Run(
        name=plain(path.name),
        created=_created(about, path),
        command=plain(shlex.join((*program(), *words))) if words else "",
        tags=tuple(map(plain, listed(about, "tags", str))),
        merged_from=tuple((plain(Path(str(o.get("folder", ""))).name), _stated(o)) for o in origins),
        state=plain(f"damaged: {'; '.join(dict.fromkeys(wrong))}" if wrong else state),
        damaged=bool(wrong),
        link=f"./{quote(os.fsencode(path.name))}/{REPORT}" if _there(path / REPORT) else None,
        **numbers,
    )


def _stored(path: Path, records: int) -> dict[str, Any] | None:
    """The numbers of ``summary.json``; None if it is missing, of another version, or older than a record."""
    with contextlib.suppress(OSError, *WRONG):
        stored = json.loads((path / summary_json.FILE).read_text(encoding="utf-8"))
        if stored["schema_version"] == summary_json.SCHEMA_VERSION and len(stored["comparisons"]) == records:
            return _numbers(stored)
    return None


def _derived(path: Path, wrong: list[str]) -> dict[str, Any]:
    run = read_run(path / RECORDS)
    if run.damage:
        wrong.append(f"{counted(run.unused, 'line')} of {RECORDS} cannot be read")
    if not run.records:
        return {}
    return _numbers(json.loads(summary_json.render(summarize(run.records))[summary_json.FILE]))


def _numbers(summary: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a run that its summary gives."""
    facts = summary["environment"]
    suites = suite_labels(row["suite"] for row in (*summary["comparisons"], *summary["groups"]))
    statuses = {}
    for row in summary["comparisons"]:
        words = [row[name] for name in ("model", "mode", "dtype", "device", "scale")]
        name = " ".join((suites[row["suite"]], *words, *row["changes"], row["candidate"]))
        statuses[plain(name)] = Status(row["status"])
    return {
        "groups": tuple(_group(row, suites[row["suite"]]) for row in summary["groups"]),
        "statuses": {name: status for name, status in statuses.items() if status.counted},
        "torch": plain(str(facts.get("torch") or "")),
        "machine": plain(str(facts.get("device_name") or facts.get("cpu") or "")),
    }


def _group(row: Mapping[str, Any], suite: str) -> Group:
    numbers = {name: finite(row[name]) for name in NUMBERS}
    ends = [numbers["geomean_low"], numbers["geomean_high"]]
    if None in ends:  # of one model
        ends = [finite(row.get("these_low")), finite(row.get("these_high"))]
    speedup = speedup_text(numbers["geomean_speedup"], *ends)
    checked = row.get("checked", True)  # files of before 25 November 2026 have no such field
    compiler = plain(row["compiler"])
    passed = f"{row['passed']:d} of {row['total']:d} {'passed' if checked else 'ran'}"
    return {
        **numbers,
        "what": plain(", ".join((suite, row["mode"], row["dtype"], row["device"]))),
        "suite": suite,
        "compiler": compiler,
        "checked": checked,
        "name": compiler_name(compiler),
        "text": passed if numbers["geomean_speedup"] is None else f"{passed}, {speedup}",
    }


def _why(error: Exception, otherwise: str) -> str:
    if isinstance(error, FileNotFoundError):
        return f"{Path(error.filename).name} is missing"
    if isinstance(error, OSError):
        return f"{Path(str(error.filename or '')).name} cannot be read ({error.strerror})"
    return otherwise


def _created(about: Mapping[str, Any], path: Path) -> datetime:
    """The start that the run states, or the time of its files."""
    if created := _stated(about):
        return created
    for name in (RUN, RECORDS, ""):
        with contextlib.suppress(OSError):
            return datetime.fromtimestamp((path / name).stat().st_mtime, timezone.utc)
    return datetime.fromtimestamp(0, timezone.utc)


def _stated(about: Mapping[str, Any]) -> datetime | None:
    """The start of a run in UTC; None if it is not stated, or not within the times that files can have."""
    with contextlib.suppress(ValueError, OverflowError):
        created = datetime.fromisoformat(str(about.get("created")))
        created = created if created.tzinfo else created.replace(tzinfo=timezone.utc)
        return created.astimezone(timezone.utc) if created.timestamp() > 0 else None
    return None


Trend = Mapping[str, Sequence[tuple[Run, Group]]]
"""One suite, mode, precision and device on one machine: points by compiler, oldest first."""


def trends(runs: Sequence[Run]) -> dict[str, Trend]:
    """By title: everything that several runs measured on one machine, the latest first."""
    lines: dict[str, dict[str, list[tuple[Run, Group]]]] = {}
    for run in runs:  # oldest first: a title that is measured again moves to the end
        for group in run.groups:
            title = " on ".join(filter(None, (group["what"], run.machine)))
            lines[title] = lines.pop(title, {})
            lines[title].setdefault(group["compiler"], []).append((run, group))
    return {t: lines[t] for t in reversed(lines) if any(len(points) > 1 for points in lines[t].values())}


def status_changes(runs: Sequence[Run]) -> Iterator[str]:
    """A sentence for each result of the newest run that passes or fails otherwise than in the run before.

    The run before is the latest earlier run with this result.
    """
    *earlier, newest = runs
    before = {name: (run.name, status) for run in earlier for name, status in run.statuses.items()}
    for name, status in newest.statuses.items():
        run, was = before.get(name, ("", status))
        if was.passed != status.passed:
            yield f"{name}: {was.value} in {run}, {status.value} in {newest.name}"
