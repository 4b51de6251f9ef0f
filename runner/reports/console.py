"""Prints the report at the end of a run: averages, a table for every section, and warnings.

On a narrow console, tables omit whole columns and name them below the table. Colors appear only on a
terminal.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from harness.schema import Status
from runner.analysis.digits import MISSING
from runner.analysis.estimate import Verdict
from runner.analysis.results import CONTROL, REFERENCE, Comparison, Finding, Summary
from runner.analysis.texts import NOT_CHECKED, coarse_note, compiler_name
from runner.analysis.verdicts.parity import MARK
from runner.labels import case_name
from runner.reports.closing import closing_lines
from runner.reports.pages.overview import counts
from runner.reports.parts.averages import averages_note, averages_tables
from runner.reports.parts.curves import curve_tables
from runner.reports.parts.environments import environment_note, environment_tables
from runner.reports.parts.grid import Table, grid_of, text_for
from runner.reports.parts.pairs import short_pair_tables
from runner.reports.parts.sections import (
    Section,
    compilers,
    environment_line,
    protocol_line,
    sections,
    top_models,
)
from runner.reports.parts.start_up import process_tables
from runner.reports.parts.table import section_table

if TYPE_CHECKING:
    from rich.console import Console

SHOWN_CASES = 5  # of each warning; report.md has all
SHOWN_TEXTS, SHOWN_LINES = 8, 3  # of the reasons of graph breaks and the like
MOST_MODELS, SHOWN_MODELS = 200, 50  # a larger section shows the models with speedups furthest from 1
STYLES = {
    **dict.fromkeys((MISSING, NOT_CHECKED, Status.APPROXIMATE.value, Verdict.SAME.value, ""), ""),
    **dict.fromkeys((Verdict.FASTER.value, Status.PASS.value), "green"),
    **dict.fromkeys((Verdict.INCONCLUSIVE.value, f"{Status.PASS.value}{MARK}"), "yellow"),
    Verdict.SLOWER.value: "red",
    Verdict.UNSTEADY.value: "magenta",
}
"""Of the words of verdicts and of parity; other words are failures."""
NOTE = "dim"


def print_report(summary: Summary, console: Console, *, elsewhere: str = "report.md") -> None:
    """Prints the whole report. Names are text, never markup. ``elsewhere``: what has all of it."""
    writer = _Writer(console, elsewhere)
    tables = averages_tables(summary)
    writer.tables(tables)
    if tables:
        writer.paragraph(averages_note(summary), NOTE)
    writer.tables(environment_tables(summary))
    if summary.of(REFERENCE):
        writer.paragraph(environment_note(summary), NOTE)
    for part in sections(summary):
        console.print()
        writer.section(part)
    writer.tables((*curve_tables(summary), *process_tables(summary), *short_pair_tables(summary)))
    writer.explanations(summary.comparisons)
    if summary.warnings:
        console.print()
    for finding in summary.warnings:
        writer.finding(finding)
    if summary.caveats:
        console.print()
    for caveat in summary.caveats:
        writer.paragraph(f"Note: {caveat}", NOTE)


def print_answer(summary: Summary, console: Console) -> None:
    """Prints what a run found, in a line for each result or group: the last that a user reads."""
    writer = _Writer(console, "")
    console.print()
    for line in closing_lines(summary):
        writer.paragraph(line, hanging=4)


class _Writer:
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

    def tables(self, tables: Iterable[Table]) -> None:
        for table in tables:
            self._console.print()
            self.table(table.within(self._console.width))

    def table(self, table: Table) -> None:
        self.paragraph(table.title, "bold")
        self._console.print(grid_of(self._console, table, _style))

    def section(self, part: Section) -> None:
        shown, left_out = top_models(part, most=MOST_MODELS, otherwise=SHOWN_MODELS)
        table = section_table(shown).within(self._console.width)
        self.table(table)
        if left_out:
            self.paragraph(f"{left_out}.", NOTE)
        for line in _caption(part, table, self._elsewhere):
            if line not in self._said:
                self.paragraph(line, NOTE)
            self._said.add(line)

    def explanations(self, comparisons: Iterable[Comparison]) -> None:
        """The first lines of each text that ``--explain`` and other extras give."""
        texts = [(c, what, lines) for c in comparisons for what, lines in c.explanations()]
        for c, what, lines in texts[:SHOWN_TEXTS]:
            self._console.print()
            name = case_name(c.record.job.case)
            self.cases(
                f"{name} {c.record.job.case.mode.value}, {compiler_name(c.compiler)}: {what}",
                "bold",
                lines,
                SHOWN_LINES,
            )
        more = len(texts[SHOWN_TEXTS:])
        if more:
            self.paragraph(f"Of {more} more, the reasons are in {self._elsewhere}.", NOTE)

    def finding(self, finding: Finding) -> None:
        self.cases(f"{finding.title}: {len(finding.cases)}", "bold yellow", finding.cases, SHOWN_CASES)
        self.paragraph(f"-> {finding.advice}", indent=2)

    def cases(self, title: str, style: str, cases: Sequence[str], most: int) -> None:
        self.paragraph(title, style)
        for case in cases[:most]:
            self.paragraph(case, indent=4)
        more = len(cases[most:])
        if more:
            self.paragraph(f"and {more} more, all in {self._elsewhere}", indent=4)


def _caption(part: Section, table: Table, elsewhere: str) -> Iterator[str]:
    counted = [c for c in part.comparisons if c.record.status.counted]
    rates = ", ".join(f"{compiler_name(name)} {_passed(counted, name)}" for name in compilers(part))
    checked = any(c.record.job.protocol.accuracy for c in counted)
    passed = "passed" if checked else "parity not checked; ran"
    yield "; ".join(
        text for text in (part.rounds, f"{passed}: {rates}", protocol_line(part.comparisons)) if text
    )
    if "torch" in part.environment:  # a worker that could not load the model tells nothing
        yield environment_line(part.environment)
    if CONTROL in compilers(part):
        yield f"{compiler_name(CONTROL)} compares eager with itself: its speedup should be 1.00x."
    if any(c.verdict is not None and not c.record.status.passed for c in part.comparisons):
        how = "its verdict is in brackets" if "parity" in table.header else "its status replaces the verdict"
        yield f"Where a candidate did not pass, the speedup does not count: {how}."
    if note := coarse_note(part.comparisons):
        yield note
    if table.omitted:
        names = ", ".join(header.replace("\n", " ") for header in table.omitted)
        yield f"Columns omitted for width: {names}; all columns are in {elsewhere}."


def _passed(counted: Sequence[Comparison], compiler: str) -> str:
    """``30/40 (wrong results 2, cannot be judged 1, did not run 7)``"""
    own = [c for c in counted if c.compiler == compiler]
    kinds = ", ".join(f"{word} {number}" for word, number in counts(c for c in own if not c.passed))
    return f"{sum(c.passed for c in own)}/{len(own)}" + (f" ({kinds})" if kinds else "")


def _style(header: str, text: str) -> str:
    if header == "model":
        return "bold"
    if header not in ("verdict", "parity"):
        return ""
    return STYLES.get(text.split(",", maxsplit=1)[0], "bold red")
