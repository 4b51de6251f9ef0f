"""The runs of a folder on a terminal, newest first."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from runner.errors import UsageError
from runner.labels import counted
from runner.reports.parts.grid import say
from runner.runs.history.page import SHOWN_CHANGES, write_page
from runner.runs.history.runs import Run, read_runs, status_changes
from runner.store.invocation import program

if TYPE_CHECKING:
    from rich.console import Console

SHOWN_RUNS = 20
SHOWN_GROUPS = 8  # of each run


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryRequest:
    """Which runs of which folder. Empty: no filter."""

    folder: Path
    suites: tuple[str, ...] = ()
    compilers: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()


def show_history(request: HistoryRequest, console: Console) -> None:
    """Prints the runs that fit the filters, and writes the page of all runs."""
    runs = read_runs(request.folder)
    shown = matching(runs, request)
    if not shown:
        raise UsageError(f"--history: no run in {request.folder} fits these filters")
    for run in shown[: -SHOWN_RUNS - 1 : -1]:
        _print_run(run, console)
    if len(shown) > SHOWN_RUNS:
        say(console, f"The page also has {counted(len(shown) - SHOWN_RUNS, 'older run')}.")
    if changes := list(status_changes(shown)):
        say(console, "\nChanged in the newest run:", "bold")
        for sentence in changes[:SHOWN_CHANGES]:
            say(console, f"    {sentence}")
        if len(changes) > SHOWN_CHANGES:
            say(console, f"    and {len(changes) - SHOWN_CHANGES} more")
    *earlier, newest = shown
    alike = (run for run in reversed(earlier) if run.statuses.keys() & newest.statuses.keys())
    if (older := next(alike, None)) is not None:
        both = (str(request.folder / run.name) for run in (older, newest))
        say(console, f"\nChanges of speed: {shlex.join((*program(), '--compare', *both))}")
    say(console, str(write_page(request.folder, runs)))


def matching(runs: Sequence[Run], request: HistoryRequest) -> list[Run]:
    """The runs that fit the filters, each with the groups and statuses that fit."""
    runs = [run for run in runs if not request.tags or set(request.tags) & set(run.tags)]
    if not (request.suites or request.compilers):
        return list(runs)

    def fits(suite: str, compiler: str) -> bool:
        asked = ((suite, request.suites), (compiler, request.compilers))
        return all(not words or word in words for word, words in asked)

    fitting = [
        replace(
            run,
            groups=tuple(group for group in run.groups if fits(group["suite"], group["compiler"])),
            # a status is called "SUITE MODEL ... CANDIDATE"
            statuses={n: s for n, s in run.statuses.items() if fits(n.split(" ")[0], n.split(" ")[-1])},
        )
        for run in runs
    ]
    return [run for run in fitting if run.groups or run.statuses]  # a run of --sweep has no groups


def _print_run(run: Run, console: Console) -> None:
    tags = f" [{', '.join(run.tags)}]" if run.tags else ""
    state = "" if run.state == "complete" else f"  {run.state}"
    say(console, f"{run.created:%Y-%m-%d %H:%M}  {run.name}{tags}{state}", "bold")
    where = ", ".join(filter(None, (run.torch and f"torch {run.torch}", run.machine)))
    if where:
        say(console, f"    {where}")
    for group in run.groups[:SHOWN_GROUPS]:
        say(console, f"    {group['what']}, {group['name']}: {group['text']}")
    if run.statuses and not run.groups:
        say(console, f"    {counted(len(run.statuses), 'result')} of a sweep, in no average")
    if len(run.groups) > SHOWN_GROUPS:
        say(console, f"    {len(run.groups) - SHOWN_GROUPS} more are on the page")
