"""The comparison on a terminal. Columns without room are omitted and named."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from runner.analysis.estimate import Verdict
from runner.reports.parts.grid import Table, grid_for, say, text_for
from runner.runs.compare.changes import RunChanges
from runner.runs.compare.gates import GateResult
from runner.runs.compare.output.words import SIDES, WORDS, everything, head_lines

if TYPE_CHECKING:
    from rich.console import Console

SHOWN_CASES = 20  # of one list; the Markdown has more
LEAST_COLUMNS = 4  # from the left, however narrow the console is
STYLES = {WORDS[Verdict.SLOWER]: "bold red", WORDS[Verdict.FASTER]: "green"}
NOTE = "dim"


def print_changes(changes: RunChanges, results: Sequence[GateResult], console: Console) -> None:
    """Prints everything; names are text, never markup."""
    for place, line in enumerate(head_lines(changes)):
        if place < len(SIDES):
            say(console, line)  # the path may be copied
        else:
            console.print(text_for(console, line))
    for shown in everything(changes):
        console.print()
        if shown.table is None:
            _cases(console, f"{shown.title}: {len(shown.cases)}", shown.cases, bad=shown.bad)
            continue
        if shown.title:
            console.print(text_for(console, shown.title, "bold"))
        _table(console, shown.table)
        if shown.note:
            console.print(text_for(console, shown.note, NOTE))
    for result in results:
        console.print()
        print_result(result, console)


def print_result(result: GateResult, console: Console) -> None:
    count = len(result.cases)
    words = f"--fail-on {result.gate.words}: {'FAILED' if count else 'passed'} ({result.title}: {count})"
    _cases(console, words, result.cases, bad=bool(count))


def _cases(console: Console, title: str, cases: Sequence[str], *, bad: bool) -> None:
    say(console, title, "bold red" if bad else "bold")
    for case in cases[:SHOWN_CASES]:
        say(console, f"    {case}")
    if len(cases) > SHOWN_CASES:
        say(console, f"    and {len(cases) - SHOWN_CASES} more; --format=md has more of them", NOTE)


def _table(console: Console, table: Table) -> None:
    columns = range(len(table.header))
    shown = replace(table, droppable=tuple(columns[: LEAST_COLUMNS - 1 : -1])).within(console.width)
    grid = grid_for(console, shown.header)
    for row in shown.rows:
        grid.add_row(*(text_for(console, cell, STYLES.get(cell, "")) for cell in row))
    console.print(grid)
    left = [name.replace("\n", " ") for name in table.header if name not in shown.header]
    if left:
        omitted = f"Columns omitted for width: {', '.join(left)}; --format=md has all columns."
        console.print(text_for(console, omitted, NOTE))
