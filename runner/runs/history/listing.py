"""The runs of an index on a terminal, newest first."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from runner.analysis.digits import ratio_text
from runner.analysis.statistics import geometric_mean
from runner.reports.parts.fit import shorten
from runner.reports.parts.grid import Table, grid_for, say, text_for
from runner.reports.parts.sections import compiler_name
from runner.runs.compare.run import Result
from runner.runs.history.asked import Asked
from runner.runs.history.index import IndexedRun
from runner.runs.history.trends import SHOWN_CHANGES, Trend, conditions_of, latest_changes, speedups_of

if TYPE_CHECKING:
    from rich.console import Console

HEADER = ("when (UTC)", "run", "what", "passed", "geometric means", "torch", "machine")
SHOWN_MEANS = 4
DROPPED_FIRST = ("machine", "torch", "what")
WRAPPING = ("run", "what", "geometric means", "torch", "machine")
SHORT_NAME = 28  # characters; a name starts with the time and ends with the precision


def matching(entries: Sequence[IndexedRun], asked: Asked) -> tuple[IndexedRun, ...]:
    """The runs that match the filters, each with the matching results."""
    found = []
    for entry in entries:
        if asked.since is not None and entry.created < asked.since:
            continue
        if asked.tags and not set(asked.tags) & set(entry.tags):
            continue
        results = tuple(result for result in entry.results if _fits(result, asked))
        if results:
            found.append(replace(entry, results=results))
    return tuple(found)


def _fits(result: Result, asked: Asked) -> bool:
    suites, compilers = asked.suites, asked.compilers
    return (not suites or result.conditions.get("suite") in suites) and (
        not compilers or result.compiler in compilers
    )


def print_runs(entries: Sequence[IndexedRun], asked: Asked, console: Console) -> None:
    table = Table(
        header=HEADER,
        rows=tuple(_row(entry, asked) for entry in reversed(entries)),
        droppable=tuple(map(HEADER.index, DROPPED_FIRST)),
    )
    shown = table.within(console.width)
    if len(shown.header) < len(HEADER):  # the name of a run may be long
        short = tuple((when, shorten(name, SHORT_NAME), *others) for when, name, *others in table.rows)
        shown = replace(table, rows=short).within(console.width)
    grid = grid_for(console, shown.header, wrapping=WRAPPING)
    for row in shown.rows:
        grid.add_row(*(text_for(console, cell) for cell in row))
    console.print(grid)
    left = [name for name in HEADER if name not in shown.header]
    if left:
        console.print(f"Columns omitted for width: {', '.join(left)}.", style="dim")


def print_changes(trends: Sequence[Trend], console: Console) -> None:
    changed = list(latest_changes(trends))
    if changed:
        say(console, "\nChanged beyond noise in the newest run:", "bold")
    for sentence in changed[:SHOWN_CHANGES]:
        say(console, f"    {sentence}")


def _row(entry: IndexedRun, asked: Asked) -> tuple[str, ...]:
    name = f"{entry.name} [{', '.join(entry.tags)}]" if entry.tags else entry.name
    gone = "" if (asked.folder / entry.name).is_dir() else " (folder gone)"
    what = dict.fromkeys(map(conditions_of, entry.results))
    means = list(_means(entry.counted))
    more = [f"and {len(means) - SHOWN_MEANS} more"] if len(means) > SHOWN_MEANS else []
    return (
        entry.created.strftime("%Y-%m-%d %H:%M"),
        f"{name}{gone}",
        "\n".join(what),
        entry.passed_text,
        "\n".join((*means[:SHOWN_MEANS], *more)),
        entry.facts.get("torch", ""),
        entry.machine,
    )


def _means(results: Sequence[Result]) -> Iterator[str]:
    """``inductor 1.23x, 12/13``: the geometric mean over passed results of all suites."""
    for compiler in dict.fromkeys(result.compiler for result in results):
        mine = [result for result in results if result.compiler == compiler]
        speedups = speedups_of(mine)
        if speedups:
            mean = ratio_text(geometric_mean(speedups)[0])
            yield f"{compiler_name(compiler)} {mean}, {len(speedups)}/{len(mine)}"
