"""Prints the report at the end of a run on about one screen: its tables, then what it found in a few lines.

On a narrow console, tables omit whole columns and name them below the table. Colors appear only on a
terminal.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from harness.schema import Status
from runner.analysis.digits import MISSING
from runner.analysis.results import Finding, Summary
from runner.analysis.texts import MARK, NOT_CHECKED
from runner.analysis.verdicts import Verdict
from runner.reports.closing import closing_lines, ending
from runner.reports.parts.grid import Table, grid_of, text_for
from runner.reports.parts.view import CONSOLE, Lists, View
from runner.reports.views import EXPLAINED, VIEWS

if TYPE_CHECKING:
    from rich.console import Console

SHOWN_LISTS, SHOWN_CASES, SHOWN_LINES = 8, 5, 3  # cases of a warning, lines of an explanation
STYLES = {
    **dict.fromkeys((MISSING, NOT_CHECKED, Status.APPROXIMATE.value, Verdict.SAME.value, ""), ""),
    **dict.fromkeys((Verdict.FASTER.value, "improved", Status.PASS.value), "green"),
    **dict.fromkeys((Verdict.INCONCLUSIVE.value, f"{Status.PASS.value}{MARK}"), "yellow"),
    Verdict.SLOWER.value: "red",
    Verdict.UNSTEADY.value: "magenta",
}
"""Of the words of verdicts and of parity; other words are failures."""
SCREEN, MOST_ANSWERS = 12, 3  # lines below the tables, with the path of the report; results among them
NOTE = "dim"


def print_report(
    summary: Summary, console: Console, *, elsewhere: str = "report.md", full: bool = False
) -> None:
    """Prints the tables and, with --explain or ``full``, warnings and notes. Names are text, never markup.

    ``elsewhere``: what has all of it.
    """
    writer, full = Writer(console, elsewhere), full or _explained(summary)
    for view in VIEWS:
        if isinstance(view, View) and CONSOLE in view.outlets:
            for table in view.tables(summary, short=True):
                writer.table(table)
    for view in VIEWS:
        if isinstance(view, Lists) and CONSOLE in view.outlets and (full or view.name == EXPLAINED):
            writer.lists([*view.lists(summary)], SHOWN_LINES if view.name == EXPLAINED else SHOWN_CASES)


def _explained(summary: Summary) -> bool:
    return any(c.record.job.extras.explain for c in summary.comparisons)


def print_answer(summary: Summary, console: Console, *, full: bool = False) -> None:
    """Prints what a run found, in a dozen lines at most: the last that a user reads."""
    writer = Writer(console, "")
    console.print()
    lines = closing_lines(summary, MOST_ANSWERS)
    others = [*ending(summary, full=full or _explained(summary))]
    room = console.width - 10  # a line breaks at a space
    if sum(1 + len(line) // room for line in lines) + len(others) < SCREEN:  # else, the averages tell it
        for line in lines:
            writer.paragraph(line, hanging=4)
    for line in others:
        writer.line(line)


class Writer:
    """``elsewhere``: what has everything that has no room."""

    def __init__(self, console: Console, elsewhere: str) -> None:
        self._console = console
        self._elsewhere = elsewhere
        self._said: set[str] = set()  # lines below tables that the next tables need not repeat

    def paragraph(self, text: str, style: str = "", indent: int = 0, hanging: int = 0) -> None:
        """``hanging``: more indentation of the lines after the first."""
        room = self._console.width - indent - hanging
        for place, line in enumerate(text_for(self._console, text, style).wrap(self._console, room)):
            line.rstrip()
            line.pad_left(indent + (hanging if place else 0))
            self._console.print(line)

    def line(self, text: str) -> None:
        """One line: what has no room is in the report."""
        line, dots = text_for(self._console, text), "..."
        if line.cell_len > self._console.width:
            line.truncate(self._console.width - len(dots))
            line.append(dots)
        self._console.print(line)

    def table(self, table: Table) -> None:
        shown = table.within(self._console.width)
        self._console.print()
        if table.title:
            self.paragraph(table.title, "bold")
        self._console.print(grid_of(self._console, shown, _style))
        names = ", ".join(header.replace("\n", " ") for header in shown.omitted)
        omitted = f"Columns omitted for width: {names}; {self._elsewhere} has all columns." if names else ""
        for line in (*table.notes, omitted):
            if line and line not in self._said:
                self.paragraph(line, NOTE)
            self._said.add(line)

    def lists(self, lists: Sequence[Finding], most: int) -> None:
        """The first lines of each."""
        for listed in lists[:SHOWN_LISTS]:
            self._console.print()
            if not listed.title:
                for line in listed.cases:
                    self.paragraph(f"Note: {line}", NOTE)
                continue
            count, style = (f": {len(listed.cases)}", "bold yellow") if listed.advice else ("", "bold")
            self.paragraph(f"{listed.title}{count}", style)
            for line in listed.cases[:most]:
                self.paragraph(line, indent=4)
            if more := len(listed.cases[most:]):
                self.paragraph(f"and {more} more, all in {self._elsewhere}", indent=4)
            if listed.advice:
                self.paragraph(f"-> {listed.advice}", indent=2)
        if more := len(lists[SHOWN_LISTS:]):
            self.paragraph(f"{more} more are in {self._elsewhere}.", NOTE)


def _style(header: str, text: str) -> str:
    if header == "model":
        return "bold"
    if header not in ("verdict", "parity"):
        return ""
    return STYLES.get(text.split(",", maxsplit=1)[0], "bold red")
