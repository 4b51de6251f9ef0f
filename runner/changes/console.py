"""The comparison on a terminal. Columns that it has no room for are left out, and named."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from runner.changes.changes import Changes, Verdict
from runner.changes.gates import Outcome
from runner.changes.words import (
    CHANGE_HEADER,
    GROUP_HEADER,
    CaseList,
    case_lists,
    change_rows,
    group_rows,
    head_lines,
    threshold_line,
    verdict_line,
)
from runner.digits import MISSING
from runner.labels import plain
from runner.reports._fit import shorten, widest

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

SHOWN_CASES = 20  # of one list; the Markdown has more
LONGEST_NAME = 40
GAP = 2
STYLES = {Verdict.REGRESSED.value: "bold red", Verdict.IMPROVED.value: "green"}
NOTE = "dim"


def print_changes(changes: Changes, outcomes: Sequence[Outcome], console: Console) -> None:
    """Prints everything; names are text, never markup."""
    for line in head_lines(changes):
        _line(console, line)
    rows = group_rows(changes)
    if rows:
        console.print()
        places = {row[1] for row in rows}
        if len(places) == 1:  # said once, above the table
            _line(console, places.pop(), "bold")
            rows = [(row[0], MISSING, *row[2:]) for row in rows]
        _table(console, GROUP_HEADER, rows)
    found = change_rows(changes)
    if found:
        console.print()
        _line(console, verdict_line(changes), "bold")
        _table(console, CHANGE_HEADER, found)
        _line(console, threshold_line(), NOTE)
    for one in case_lists(changes):
        console.print()
        _cases(console, one)
    for outcome in outcomes:
        console.print()
        print_outcome(outcome, console)


def print_outcome(outcome: Outcome, console: Console) -> None:
    count = len(outcome.cases)
    words = f"--fail-on {outcome.gate.words}: {'FAILED' if count else 'passed'} ({count} {outcome.title})"
    _line(console, words, "bold red" if count else "green")
    for case in outcome.cases[:SHOWN_CASES]:
        _line(console, f"    {case}")
    if count > SHOWN_CASES:
        _line(console, f"    and {count - SHOWN_CASES} more")


def _cases(console: Console, one: CaseList) -> None:
    _line(console, f"{one.title}: {len(one.cases)}", "bold red" if one.bad else "bold")
    for case in one.cases[:SHOWN_CASES]:
        _line(console, f"    {case}")
    if len(one.cases) > SHOWN_CASES:
        _line(console, f"    and {len(one.cases) - SHOWN_CASES} more; --format=md has more of them", NOTE)


def _line(console: Console, text: str, style: str = "") -> None:
    console.print(_text(console, text, style), soft_wrap=True)


def _text(console: Console, text: str, style: str = "") -> Text:
    from rich.text import Text

    encoding = console.encoding
    lines = (plain(line) for line in text.split("\n"))
    return Text("\n".join(lines).encode(encoding, "backslashreplace").decode(encoding), style=style)


def _table(console: Console, header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    from rich import box
    from rich.table import Table

    rows = [(shorten(row[0], LONGEST_NAME), *row[1:]) for row in rows]
    filled = [i for i in range(len(header)) if any(row[i] != MISSING for row in rows)]
    kept = _fitting(console.width, header, rows, filled)
    grid = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, GAP - 1, 0, 0))
    for i in kept:
        grid.add_column(_text(console, header[i]), no_wrap=i > 0, overflow="fold", vertical="top")
    for row in rows:
        grid.add_row(*(_text(console, row[i], STYLES.get(row[i], "")) for i in kept))
    console.print(grid)
    left = [header[i].replace("\n", " ") for i in filled if i not in kept]
    if left:
        _line(console, f"Left out for width: {', '.join(left)}; --format=md has all columns.", NOTE)


def _fitting(
    width: int, header: Sequence[str], rows: Sequence[Sequence[str]], columns: Sequence[int]
) -> list[int]:
    """As many of the columns as fit, from the left; the first four always."""
    kept: list[int] = []
    room = width
    for i in columns:
        room -= widest((header[i], *(row[i] for row in rows))) + GAP
        if room + GAP < 0 and len(kept) >= 4:
            break
        kept.append(i)
    return kept
