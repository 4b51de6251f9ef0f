"""The comparison on a terminal. Columns without room are omitted and named."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from runner.analysis.digits import MISSING
from runner.analysis.estimate import Verdict
from runner.reports.parts.fit import shorten
from runner.reports.parts.grid import Table, grid_for, say, text_for
from runner.runs.compare.changes import RunChanges
from runner.runs.compare.gates import Outcome
from runner.runs.compare.output.words import (
    GROUP_HEADER,
    SIDES,
    WORDS,
    CaseList,
    case_lists,
    change_header,
    change_rows,
    group_rows,
    head_lines,
    threshold_line,
    verdict_line,
)

if TYPE_CHECKING:
    from rich.console import Console

SHOWN_CASES = 20  # of one list; the Markdown has more
LONGEST_NAME = 40
LEAST_COLUMNS = 4  # from the left, however narrow the console is
STYLES = {WORDS[Verdict.SLOWER]: "bold red", WORDS[Verdict.FASTER]: "green"}
NOTE = "dim"


def print_changes(changes: RunChanges, outcomes: Sequence[Outcome], console: Console) -> None:
    """Prints everything; names are text, never markup."""
    for place, line in enumerate(head_lines(changes)):
        if place < len(SIDES):
            say(console, line)  # the path may be copied
        else:
            console.print(text_for(console, line))
    rows = group_rows(changes)
    if rows:
        console.print()
        places = {row[1] for row in rows}
        if len(places) == 1:  # said once, above the table
            say(console, places.pop(), "bold")
            rows = [(row[0], MISSING, *row[2:]) for row in rows]
        _table(console, GROUP_HEADER, rows)
    found = change_rows(changes)
    if found:
        console.print()
        console.print(text_for(console, verdict_line(changes), "bold"))
        _table(console, change_header(changes), found)
        console.print(text_for(console, threshold_line(changes), NOTE))
    for one in case_lists(changes):
        console.print()
        _cases(console, one)
    for outcome in outcomes:
        console.print()
        print_outcome(outcome, console)


def print_outcome(outcome: Outcome, console: Console) -> None:
    count = len(outcome.cases)
    words = f"--fail-on {outcome.gate.words}: {'FAILED' if count else 'passed'} ({outcome.title}: {count})"
    say(console, words, "bold red" if count else "green")
    for case in outcome.cases[:SHOWN_CASES]:
        say(console, f"    {case}")
    if count > SHOWN_CASES:
        say(console, f"    and {count - SHOWN_CASES} more")


def _cases(console: Console, one: CaseList) -> None:
    say(console, f"{one.title}: {len(one.cases)}", "bold red" if one.bad else "bold")
    for case in one.cases[:SHOWN_CASES]:
        say(console, f"    {case}")
    if len(one.cases) > SHOWN_CASES:
        say(console, f"    and {len(one.cases) - SHOWN_CASES} more; --format=md has more of them", NOTE)


def _table(console: Console, header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    short = tuple((shorten(row[0], LONGEST_NAME), *row[1:]) for row in rows)
    table = Table(header=tuple(header), rows=short).filled()
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
