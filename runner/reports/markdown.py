"""report.md: the run as text that fits into a comment on a pull request or an issue.

Names are escaped, so that none can become markup. Long tables are folded. If the report
exceeds the limit of a comment, the longest tables and lists are cut (see ``parts.blocks``).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from runner.analysis.results import REFERENCE, Summary
from runner.analysis.texts import coarse_note, compiler_name
from runner.labels import case_name, cut, plain
from runner.reports.closing import closing_lines
from runner.reports.pages.overview import title
from runner.reports.parts.averages import averages_note, averages_tables
from runner.reports.parts.blocks import MarkdownBlock, fitted, folded, text
from runner.reports.parts.curves import curve_plot, curve_tables
from runner.reports.parts.environments import environment_note, environment_tables
from runner.reports.parts.grid import Table
from runner.reports.parts.pairs import pair_tables
from runner.reports.parts.sections import (
    Section,
    environment_line,
    plot_name,
    program_text,
    protocol_line,
    sections,
)
from runner.reports.parts.start_up import process_tables
from runner.reports.parts.table import section_table

FORMATS = ("md",)
FILE = "report.md"
LIMIT = 65_536  # bytes; GitHub allows as many characters in a comment
SHOWN_CASES = 20  # of each warning; the rest is folded
LEAST_OF_SUMMARY = 6_000  # bytes of its list, and of its table
OPEN_ROWS = 60  # a table with more rows is folded
LONGEST_LINE = 600  # characters

# Characters that can start a tag, an entity or a mention, or close a link's text, emphasis, code or a cell.
_ENTITIES = {"<": "&lt;", "&": "&amp;", "@": "&#64;"}
_SPECIAL = re.compile(
    r"(?P<entity><(?=[A-Za-z/!?])|&|@)|(?P<mark>[\\`*|~$]|\](?=[(\[:])|(?<!\w)_|_(?!\w)|^[#>+-])"
)


def render(summary: Summary) -> Mapping[str, bytes]:
    parts = sections(summary)
    machine = (environment_line(summary.environment), program_text(summary.environment))
    blocks = (
        text(f"# Eager against compiled: {escape(cut(title(summary), LONGEST_LINE))}"),
        text(f"{escape(cut(', '.join(filter(None, machine)), LONGEST_LINE))}."),
        text(f"Protocol: {escape(cut(protocol_line(summary.comparisons), LONGEST_LINE))}."),
        *_executive(summary),
        *_environments(summary),
        *_curves(summary),
        *_warnings(summary),
        *(block for part in parts for block in _section(part)),
        *_pairs(summary),
        *_environment(summary),
    )
    return {FILE: fitted(blocks, LIMIT).encode()}


def escape(text: str) -> str:
    """``text`` as one line that Markdown and HTML show unchanged."""

    def harmless(match: re.Match[str]) -> str:
        return _ENTITIES[match[0]] if match["entity"] else f"\\{match[0]}"

    return _SPECIAL.sub(harmless, plain(text))


def _executive(summary: Summary) -> Iterator[MarkdownBlock]:
    yield text("## Executive summary")
    yield replace(list_block(closing_lines(summary)), least=LEAST_OF_SUMMARY)
    for table in averages_tables(summary):
        yield text(f"**{escape(table.title)}**")
        yield replace(table_block(table), least=LEAST_OF_SUMMARY)
        yield text(averages_note(summary))


def _environments(summary: Summary) -> Iterator[MarkdownBlock]:
    for table in environment_tables(summary):
        yield text(f"## {escape(table.title)}")
        rows = table_block(table)
        yield rows if len(table.rows) <= OPEN_ROWS else folded(f"All {len(table.rows)} rows", rows)
    if summary.of(REFERENCE):
        yield text(escape(environment_note(summary)))


def _curves(summary: Summary) -> Iterator[MarkdownBlock]:
    for table in curve_tables(summary):
        yield text(f"## {escape(table.title)}")
        for name in dict.fromkeys(curve_plot(summary, curve) for curve in summary.curves):
            yield text(f"![curves]({name})")
        yield table_block(table)


def _pairs(summary: Summary) -> Iterator[MarkdownBlock]:
    for table in (*process_tables(summary), *pair_tables(summary)):
        yield folded(escape(table.title), table_block(table))


def _warnings(summary: Summary) -> Iterator[MarkdownBlock]:
    if summary.warnings:
        yield text("## Warnings")
    for finding in summary.warnings:
        yield text(f"### {escape(finding.title)}: {len(finding.cases)}")
        yield text(escape(finding.advice))
        yield list_block(finding.cases[:SHOWN_CASES])
        if finding.cases[SHOWN_CASES:]:
            yield folded("more", list_block(finding.cases[SHOWN_CASES:]))
    if summary.caveats:
        yield text("## Notes")
        yield list_block(summary.caveats)


def list_block(cases: Iterable[str]) -> MarkdownBlock:
    return MarkdownBlock(rows=[f"- {escape(case)}" for case in cases])


def _section(part: Section) -> Iterator[MarkdownBlock]:
    yield text(f"## {escape(part.title)}")
    if part.rounds:
        yield text(f"![speedups of {escape(part.suite)}]({plot_name(part.suite, part.dtype)})")
    count = len(part.comparisons)
    table = table_block(section_table(part))
    yield table if count <= OPEN_ROWS else folded(f"All {count} comparisons", table)
    rounds = f"{part.rounds} rounds. " if part.rounds else ""
    note = coarse_note(part.comparisons)
    brackets = "A verdict in brackets: the speedup does not count."
    yield text(" ".join(filter(None, (f"{rounds}{brackets}", escape(note)))))
    for c in part.comparisons:
        case = c.record.job.case
        name = f"{case_name(case)} {case.mode.value}, {compiler_name(c.compiler)}"
        for what, texts in c.explanations():
            yield folded(escape(f"{name}: {what}"), list_block(texts))
    commands = [plain(c.record.reproduce) for c in part.comparisons if c.record.reproduce]
    if commands:
        yield folded("Reproduction commands", _fenced(commands))


def _environment(summary: Summary) -> Iterator[MarkdownBlock]:
    if not summary.environment:
        return
    yield text("## Environment")
    rows = tuple((name, "" if v is None else str(v)) for name, v in sorted(summary.environment.items()))
    table = Table(header=("fact", "value"), rows=rows)
    yield folded("Every fact that the workers reported", table_block(table))


def table_block(table: Table) -> MarkdownBlock:
    """Rows beyond the report's limit are not rendered."""
    from tabulate import tabulate

    most = LIMIT // len("| - " * len(table.header))
    head, line, *texts = tabulate(
        [[escape(cell) for cell in row] for row in table.rows[:most]],
        [escape(name.replace("\n", " ")) for name in table.header],
        tablefmt="pipe",
        disable_numparse=True,
        stralign=None,  # without padding, which would exceed the limit sooner
        colalign=["right" if number else None for number in table.numbers] or None,
    ).splitlines()
    return MarkdownBlock(head=(head, line), rows=texts, more=len(table.rows) - len(texts))


def _fenced(commands: Sequence[str]) -> MarkdownBlock:
    """A code block whose fence is longer than any run of backticks inside."""
    longest = max((len(run) for run in re.findall(r"`+", "\n".join(commands))), default=0)
    fence = "`" * max(3, longest + 1)
    return MarkdownBlock(head=(f"{fence}sh",), rows=commands, foot=(fence,))
