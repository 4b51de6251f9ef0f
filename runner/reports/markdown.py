"""report.md: the run for a pull request or an issue, where it fits into a comment.

Nothing that a model is called can become markup. What is long folds away; where the whole
is longer than a comment may be, the longest tables and lists are cut (see ``_blocks``).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from runner.comparison import Finding, Summary
from runner.labels import plain
from runner.reports._averages import detailed_tables
from runner.reports._blocks import Block, fitted, folded, text
from runner.reports._environments import environment_note, environment_tables
from runner.reports._sections import (
    Section,
    compiler_name,
    environment_line,
    plot_name,
    protocol_line,
    sections,
)
from runner.reports._table import filled_columns, lines
from runner.reports._why import explanations

FORMATS = ("md",)
FILE = "report.md"
LIMIT = 65_536  # of a comment on GitHub: characters there, bytes here, which are never fewer
SHOWN_CASES = 20  # of one warning; the rest folds away
OPEN_ROWS = 60  # of a table that is not folded away
LONGEST_LINE = 600  # characters

# What can start a tag, an entity or a mention; what can close a link's text, emphasis, code or a cell.
_ENTITIES = {"<": "&lt;", "&": "&amp;", "@": "&#64;"}
_SPECIAL = re.compile(
    r"(?P<entity><(?=[A-Za-z/!?])|&|@)|(?P<mark>[\\`*|~$]|\](?=[(\[:])|(?<!\w)_|_(?!\w)|^[#>+-])"
)


def render(summary: Summary) -> Mapping[str, bytes]:
    parts = sections(summary)
    blocks = (
        text(f"# Eager against compiled: {_suites(parts)}"),
        text(f"{escape(_cut(environment_line(summary.environment)))}."),
        text(f"Protocol: {escape(_cut(protocol_line(summary.comparisons)))}."),
        *_executive(summary),
        *_environments(summary),
        *_warnings(summary.warnings),
        *(block for part in parts for block in _section(part)),
        *_environment(summary),
    )
    return {FILE: fitted(blocks, LIMIT).encode()}


def escape(text: str) -> str:
    """``text`` as one line that Markdown and HTML show as it is."""

    def harmless(found: re.Match[str]) -> str:
        return _ENTITIES[found[0]] if found["entity"] else f"\\{found[0]}"

    return _SPECIAL.sub(harmless, plain(text))


def _suites(parts: Sequence[Section]) -> str:
    return escape(_cut(", ".join(dict.fromkeys(part.suite for part in parts)))) or "no records"


def _cut(line: str) -> str:
    return line if len(line) <= LONGEST_LINE else f"{line[:LONGEST_LINE]}..."


def _executive(summary: Summary) -> Iterator[Block]:
    yield text("## Executive summary")
    for table in detailed_tables(summary):
        if not table.empty:
            rows = [(compiler_name(compiler), *cells) for compiler, cells in table.rows]
            yield text(f"**{escape(table.caption.strip())}**")
            yield _table(("Compiler", *table.columns), rows, len(rows))
    yield text(
        "Only models that passed parity enter an average; the number after the slash counts them all. "
        "Slowdowns count as slowdowns."
    )
    if summary.caveats:
        yield Block(rows=[f"- {escape(caveat)}" for caveat in summary.caveats])


def _environments(summary: Summary) -> Iterator[Block]:
    for table in environment_tables(summary):
        yield text(f"## {escape(table.title)}")
        rows = _table(table.header, table.rows, len(table.rows), table.numbers)
        yield rows if len(table.rows) <= OPEN_ROWS else folded(f"All {len(table.rows)} rows", rows)
    if summary.across:
        yield text(escape(environment_note(summary)))


def _warnings(findings: Sequence[Finding]) -> Iterator[Block]:
    if findings:
        yield text("## Warnings")
    for finding in findings:
        yield text(f"### {escape(finding.title)}: {len(finding.cases)}")
        yield text(escape(finding.advice))
        yield _list(finding.cases[:SHOWN_CASES])
        if finding.cases[SHOWN_CASES:]:
            yield folded("more", _list(finding.cases[SHOWN_CASES:]))


def _list(cases: Iterable[str]) -> Block:
    return Block(rows=[f"- {escape(case)}" for case in cases])


def _section(part: Section) -> Iterator[Block]:
    yield text(f"## {escape(part.title)}")
    if part.rounds:
        yield text(f"![speedups of {escape(part.suite)}]({plot_name(part.suite, part.dtype)})")
    columns = filled_columns(part)
    count = len(part.comparisons)
    table = _table(
        [column.header.replace("\n", " ") for column in columns],
        (cells for _, cells in lines(part, columns)),
        count,
        [column.number for column in columns],
    )
    yield table if count <= OPEN_ROWS else folded(f"All {count} comparisons", table)
    rounds = f"{part.rounds} rounds. " if part.rounds else ""
    yield text(f"{rounds}A verdict in brackets: parity failed, the speedup counts for nothing.")
    for title, texts in explanations(part):
        yield folded(escape(title), _list(texts))
    commands = [plain(c.record.reproduce) for c in part.comparisons if c.record.reproduce]
    if commands:
        yield folded("Reproduction commands", _fenced(commands))


def _environment(summary: Summary) -> Iterator[Block]:
    if not summary.environment:
        return
    yield text("## Environment")
    rows = [
        (name, "" if value is None else str(value)) for name, value in sorted(summary.environment.items())
    ]
    yield folded("Every fact that the workers reported", _table(("fact", "value"), rows, len(rows)))


def _table(
    header: Sequence[str], rows: Iterable[Sequence[str]], count: int, numbers: Sequence[bool] = ()
) -> Block:
    """``count`` is that of the rows: only as many are asked for as the report may have room for."""
    marks = ["--:" if number else "---" for number in numbers] or ["---"] * len(header)
    made, size = list[str](), 0
    for row in rows:
        made.append(_row(row))
        size += len(made[-1])
        if size > LIMIT:
            break
    return Block(head=(_row(header), "| " + " | ".join(marks) + " |"), rows=made, more=count - len(made))


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(escape(cell) for cell in cells) + " |"


def _fenced(commands: Sequence[str]) -> Block:
    """A code block whose fence is longer than any run of backticks inside."""
    longest = max((len(run) for run in re.findall(r"`+", "\n".join(commands))), default=0)
    fence = "`" * max(3, longest + 1)
    return Block(head=(f"{fence}sh",), rows=commands, foot=(fence,))
