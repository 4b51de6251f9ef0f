"""What a person reads when a run ends: averages, a table for every section, and warnings.

The tables fit the console's width: where it is narrow, whole columns are left
out and named under the table (see ``_fit``). Colours appear only on a terminal.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from harness.schema import Status
from runner.comparison import CONTROL, Finding, Summary, Verdict
from runner.digits import MISSING
from runner.labels import plain
from runner.reports._averages import AverageTable, detailed_tables
from runner.reports._environments import Table, environment_note, environment_tables
from runner.reports._fit import WIDE_GAP, Fitted, fit, widest
from runner.reports._sections import (
    Section,
    compiler_name,
    environment_line,
    protocol_line,
    sections,
)
from runner.reports._telling import telling

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table as Grid
    from rich.text import Text

SHOWN_CASES = 5  # of one warning; report.md has them all
MOST_MODELS, TELLING = 200, 50  # of one section; of more, those furthest from 1
VERDICT_STYLES = {
    Verdict.FASTER.value: "green",
    Verdict.SLOWER.value: "red",
    Verdict.SAME.value: "",
    Verdict.INCONCLUSIVE.value: "yellow",
}
NO_STYLE = (MISSING, Status.PASS_DUE_TO_SKIP.value, "")
NOTE = "dim"


def print_report(summary: Summary, console: Console) -> None:
    """Prints the whole report. Names are text, never markup."""
    writer = _Writer(console)
    for table in detailed_tables(summary):
        if not table.empty:
            writer.averages(table)
    writer.paragraph(
        "Only models that passed parity enter an average; the number after the slash counts them all. "
        "Slowdowns count as slowdowns.",
        NOTE,
    )
    for apart in environment_tables(summary):
        writer.blank()
        writer.table(apart)
    if summary.across:
        writer.paragraph(environment_note(summary), NOTE)
    for part in sections(summary):
        writer.blank()
        writer.section(part)
    if summary.warnings:
        writer.blank()
    for finding in summary.warnings:
        writer.finding(finding)
    if summary.caveats:
        writer.blank()
    for caveat in summary.caveats:
        writer.paragraph(f"Note: {caveat}", NOTE)


class _Writer:
    """Prints text in the characters that the console's encoding has."""

    def __init__(self, console: Console) -> None:
        self._console = console

    def blank(self) -> None:
        self._console.print()

    def paragraph(self, text: str, style: str = "", indent: int = 0) -> None:
        for line in self._text(text, style).wrap(self._console, self._console.width - indent):
            line.rstrip()
            line.pad_left(indent)
            self._console.print(line)

    def averages(self, table: AverageTable) -> None:
        """One table, or several below each other where its columns are more than the width holds."""
        names = [compiler_name(compiler) for compiler, _ in table.rows]
        for chosen in _chunks(self._console.width - widest(names), table):
            self.paragraph(table.caption.strip(), "bold")
            grid = self._grid(["", *(table.columns[i] for i in chosen)], WIDE_GAP)
            for name, (_, cells) in zip(names, table.rows, strict=True):
                grid.add_row(self._text(name), *(self._text(cells[i] or MISSING) for i in chosen))
            self._console.print(grid)
            self.blank()

    def table(self, table: Table) -> None:
        """Without the columns for which there is no room."""
        fitting = table.within(self._console.width, WIDE_GAP)
        self.paragraph(table.title, "bold")
        grid = self._grid(fitting.header, WIDE_GAP, fitting.numbers)
        for row in fitting.rows:
            grid.add_row(*(self._text(text, VERDICT_STYLES.get(text, "")) for text in row))
        self._console.print(grid)

    def section(self, part: Section) -> None:
        shown, left_out = telling(part, most=MOST_MODELS, otherwise=TELLING)
        fitted = fit(shown, self._console.width)
        self.paragraph(part.title, "bold")
        grid = self._grid([c.header for c in fitted.columns], fitted.gap, [c.number for c in fitted.columns])
        for row in fitted.rows:
            cells = zip(fitted.columns, row, strict=True)
            grid.add_row(*(self._text(text, _style(column.key, text)) for column, text in cells))
        self._console.print(grid)
        if left_out:
            self.paragraph(f"{left_out}.", NOTE)
        for line in _caption(part, fitted):
            self.paragraph(line, NOTE)

    def finding(self, finding: Finding) -> None:
        self.paragraph(f"{finding.title}: {len(finding.cases)}", "bold yellow")
        for case in finding.cases[:SHOWN_CASES]:
            self.paragraph(case, indent=4)
        more = len(finding.cases[SHOWN_CASES:])
        if more:
            self.paragraph(f"and {more} more, all in report.md", indent=4)
        self.paragraph(f"-> {finding.advice}", indent=2)

    def _grid(self, headers: Sequence[str], gap: int, numbers: Sequence[bool] = ()) -> Grid:
        from rich import box
        from rich.table import Table

        # the box divides columns by one space itself
        grid = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, gap - 1, 0, 0))
        for i, header in enumerate(headers):
            right = bool(numbers) and numbers[i]
            grid.add_column(
                self._header(header),
                justify="right" if right else "left",
                vertical="top",
                no_wrap=i > 0,
                overflow="fold",
            )
        return grid

    def _header(self, text: str) -> Text:
        from rich.text import Text

        return Text("\n").join(self._text(line) for line in text.split("\n"))

    def _text(self, text: str, style: str = "") -> Text:
        from rich.text import Text

        encoding = self._console.encoding
        return Text(plain(text).encode(encoding, "backslashreplace").decode(encoding), style=style)


def _chunks(room: int, table: AverageTable) -> Iterator[list[int]]:
    """Column numbers that fit beside each other in ``room`` characters; at least one at a time."""
    chosen: list[int] = []
    left = room
    for i, column in enumerate(table.columns):
        need = WIDE_GAP + widest((column, *(cells[i] for _, cells in table.rows)))
        if chosen and need > left:
            yield chosen
            chosen, left = [], room
        chosen.append(i)
        left -= need
    if chosen:
        yield chosen


def _caption(part: Section, fitted: Fitted) -> Iterator[str]:
    counts = ", ".join(f"{compiler_name(g.compiler)} {g.passed}/{g.total}" for g in part.groups)
    yield "; ".join(
        text for text in (part.rounds, f"passed: {counts}", protocol_line(part.comparisons)) if text
    )
    yield environment_line(part.environment)
    if CONTROL in part.compilers:
        yield f"{compiler_name(CONTROL)} is eager against itself: it must come out 1.00x."
    if any(c.verdict is not None and not c.record.status.passed for c in part.comparisons):
        apart = any(column.key == "parity" for column in fitted.columns)
        how = "its verdict is in brackets" if apart else "the status stands where the verdict would"
        yield f"Where parity failed, no speedup counts: {how}."
    if fitted.dropped:
        names = ", ".join(column.header.replace("\n", " ") for column in fitted.dropped)
        yield f"Left out for width: {names}; all columns are in report.md and the CSV files."


def _style(key: str, text: str) -> str:
    if key == "model":
        return "bold"
    if key not in ("verdict", "parity") or text in NO_STYLE:
        return ""
    if text == Status.PASS.value:
        return "green"
    return VERDICT_STYLES.get(text, "bold red")
