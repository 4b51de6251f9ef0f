"""``--history``: the runs of a folder as a list and a page, from the ``summary.json`` of each."""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote

from harness.declared import finite
from harness.schema import Status, of_environment
from runner.analysis.digits import speedup_text
from runner.analysis.texts import compiler_name
from runner.errors import UsageError
from runner.names import counted, plain, suite_labels
from runner.reports import summary_json
from runner.reports.pages.templates import template
from runner.reports.parts.grid import say
from runner.runs.series import series
from runner.store.invocation import program
from runner.store.record_file import stored
from runner.store.run_folder import RUN, listed, read_run_json, write_asked

if TYPE_CHECKING:
    from rich.console import Console

PAGE, REPORT = "index.html", "report.html"
SHOWN_RUNS, SHOWN_GROUPS, SHOWN_CHANGES = 20, 8, 20
WHAT = "give the folder that holds your runs"
UNDATED = datetime.fromtimestamp(0, timezone.utc)


@dataclass(frozen=True, slots=True, kw_only=True)
class Filter:
    """Which runs and results are listed. Empty: all."""

    suites: tuple[str, ...] = ()
    compilers: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()


class Group(NamedTuple):
    """The averages of one compiler over the models of ``what``: suite, mode, precision and device."""

    what: str
    suite: str
    compiler: str
    text: str  # ``11 of 12 passed, 1.50x [1.45, 1.55]``


@dataclass(frozen=True, slots=True, kw_only=True)
class Listed:
    """One run. ``state``: "" for a whole one, else what is missing. ``statuses``: by the result's name."""

    name: str
    created: datetime = UNDATED
    command: str = ""
    tags: tuple[str, ...] = ()
    state: str = ""
    link: str | None = None
    groups: tuple[Group, ...] = ()
    statuses: Mapping[tuple[str, ...], Status] = field(default_factory=dict)
    speedups: Mapping[tuple[str, ...], float] = field(default_factory=dict)  # of those that passed
    torch: str = ""
    machine: str = ""


def read_runs(folder: Path) -> list[Listed]:
    """The runs of the folder, oldest first. ``UsageError`` if there is none."""
    try:
        if not folder.is_dir():
            there = "is a file" if folder.exists() else "does not exist"
            raise UsageError(f"--history: {folder} {there}; {WHAT}")
        if stored(folder / RUN).exists():
            raise UsageError(f"--history: {folder} is a run itself; {WHAT}")
        runs = [_run(path) for path in folder.iterdir() if stored(path / RUN).is_file()]
    except OSError as error:
        raise UsageError(f"--history: {folder} cannot be read ({error.strerror})") from None
    if not runs:
        raise UsageError(f"--history: there is no run in {folder}; {WHAT}")
    return sorted(runs, key=lambda run: (run.created, run.name))


def _run(path: Path) -> Listed:
    """One run. Never raises for a file with other content: ``state`` names it."""
    run, again = Listed(name=plain(path.name)), f"--visualize-logs={path} makes it"
    try:
        about = read_run_json(path)
        created = datetime.fromisoformat(str(about["created"]))
        words = [str(word) for word in listed(about, "command", object)]
        run = replace(
            run,
            created=created if created.tzinfo else created.replace(tzinfo=timezone.utc),
            command=plain(shlex.join((*program(), *words))),
            tags=tuple(map(plain, listed(about, "tags", str))),
            link=f"./{quote(os.fsencode(path.name))}/{REPORT}" if (path / REPORT).exists() else None,
        )
        planned = sum(len(list(job["candidates"])) for job in about["jobs"])
    except (OSError, ValueError, KeyError, TypeError):
        return replace(run, state=f"{RUN} cannot be read")
    try:
        summary = json.loads((path / summary_json.FILE).read_text(encoding="utf-8"))
        done = len(summary["comparisons"])
        state = "" if done >= planned else f"unfinished: {done} of {counted(planned, 'result')}"
        return replace(run, **_numbers(summary), state=state)
    except FileNotFoundError:
        return replace(run, state=f"no {summary_json.FILE}; {again}")
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return replace(run, state=f"{summary_json.FILE} cannot be read; {again} anew")


def _numbers(summary: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a run that its summary gives. ``ValueError`` for one of another version."""
    if summary["schema_version"] != summary_json.SCHEMA_VERSION:
        raise ValueError
    facts = summary["environment"]
    suites = suite_labels(row["suite"] for row in (*summary["comparisons"], *summary["groups"]))
    statuses, speedups = {}, {}
    for row in summary["comparisons"]:
        words = (row[name] for name in ("model", "mode", "dtype", "device", "scale"))
        environment = row.get("environment")
        candidate = of_environment(row["compiler"], environment) if environment else row["compiler"]
        name = tuple(map(plain, (suites[row["suite"]], *words, candidate)))
        if (status := Status(row["status"])).counted:
            statuses[name] = status
        if status.passed and (speedup := finite(row.get("speedup"))) is not None:
            speedups[name] = speedup
    return {
        "groups": tuple(_group(row, suites[row["suite"]]) for row in summary["groups"]),
        "statuses": statuses,
        "speedups": speedups,
        "torch": plain(str(facts.get("torch") or "")),
        "machine": plain(str(facts.get("device_name") or facts.get("cpu") or "")),
    }


def _group(row: Mapping[str, Any], suite: str) -> Group:
    mean, *ends = (finite(row.get(f"geomean_{name}")) for name in ("speedup", "low", "high"))
    if None in ends:  # of one model
        ends = [finite(row.get("these_low")), finite(row.get("these_high"))]
    passed = f"{row['passed']:d} of {row['total']:d} {'passed' if row.get('checked', True) else 'ran'}"
    what = plain(", ".join((suite, row["mode"], row["dtype"], row["device"])))
    text = passed if mean is None else f"{passed}, {speedup_text(mean, *ends)}"
    return Group(what, suite, plain(row["compiler"]), text)


def matching(runs: Sequence[Listed], asked: Filter) -> list[Listed]:
    """The runs that fit the filter, each with the groups and statuses that fit."""

    def fits(suite: str, compiler: str) -> bool:
        return suite in (asked.suites or (suite,)) and compiler in (asked.compilers or (compiler,))

    fitting = []
    for run in runs:
        groups = tuple(group for group in run.groups if fits(group.suite, group.compiler))
        statuses = {name: status for name, status in run.statuses.items() if fits(name[0], name[-1])}
        speedups = {name: speedup for name, speedup in run.speedups.items() if fits(name[0], name[-1])}
        every = not (asked.suites or asked.compilers)
        if (every or groups or statuses) and (not asked.tags or {*asked.tags} & {*run.tags}):
            fitting.append(replace(run, groups=groups, statuses=statuses, speedups=speedups))
    return fitting


def status_changes(runs: Sequence[Listed]) -> Iterator[str]:
    """A sentence for each result of the newest run that passes, or fails, unlike the last time."""
    *earlier, newest = runs
    before = {name: (run.name, status) for run in earlier for name, status in run.statuses.items()}
    for name, status in newest.statuses.items():
        run, was = before.get(name, ("", status))
        if was.passed != status.passed:
            yield f"{' '.join(name)}: {was.value} in {run}, {status.value} in {newest.name}"


def show_history(folder: Path, asked: Filter, console: Console, *, otava: bool = False) -> None:
    """Prints the runs that fit, the newest first, and writes the page of all runs of the folder.

    ``otava``: and the series of those that fit.
    """
    runs = read_runs(folder)
    shown = matching(runs, asked)
    if not shown:
        raise UsageError(f"--history: no run in {folder} fits these filters")
    for run in shown[: -SHOWN_RUNS - 1 : -1]:
        tags = f" [{', '.join(run.tags)}]" if run.tags else ""
        say(console, f"{run.created:%Y-%m-%d %H:%M}  {run.name}{tags}  {run.state}".rstrip(), "bold")
        for group in run.groups[:SHOWN_GROUPS]:
            say(console, f"    {group.what}, {compiler_name(group.compiler)}: {group.text}")
        if len(run.groups) > SHOWN_GROUPS:
            say(console, f"    {len(run.groups) - SHOWN_GROUPS} more are on the page")
    if changes := list(status_changes(shown))[:SHOWN_CHANGES]:
        say(console, "\nChanged in the newest run:", "bold")
        say(console, "\n".join(f"    {sentence}" for sentence in changes))
    *earlier, newest = shown
    alike = (run for run in reversed(earlier) if run.statuses.keys() & newest.statuses.keys())
    if (older := next(alike, None)) is not None:
        both = (str(folder / run.name) for run in (older, newest))
        say(console, f"\nChanges of speed: {shlex.join((*program(), '--compare', *both))}")
    title, again = plain(folder.resolve().name or str(folder)), " ".join(program())
    changed = list(status_changes(runs))[:SHOWN_CHANGES]
    page = template("index.html.j2").render(title=title, runs=runs[::-1], changes=changed, program=again)
    files, text = series(shown, folder) if otava else ({}, "")
    for name, content in {PAGE: page.encode(), **files}.items():
        write_asked("--history", folder / name, content)
        say(console, str(folder / name))
    if text:
        say(console, text)
