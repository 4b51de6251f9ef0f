"""report.md: the run for a pull request or an issue. Nothing that a model is called can become markup."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from runner.comparison import Finding, Summary
from runner.labels import plain
from runner.reports._averages import detailed_tables
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

FILE = "report.md"
SHOWN_CASES = 20  # of one warning; the rest folds away

# What can start a tag, an entity or a mention; what can close a link's text, emphasis, code or a cell.
_ENTITIES = {"<": "&lt;", "&": "&amp;", "@": "&#64;"}
_SPECIAL = re.compile(
    r"(?P<entity><(?=[A-Za-z/!?])|&|@)|(?P<mark>[\\`*|~$]|\](?=[(\[:])|(?<!\w)_|_(?!\w)|^[#>+-])"
)


def render(summary: Summary) -> Mapping[str, bytes]:
    parts = sections(summary)
    text = "\n\n".join(
        (
            f"# Eager against compiled: {_suites(parts)}",
            f"{escape(environment_line(summary.environment))}.",
            f"Protocol: {escape(protocol_line(summary.comparisons))}.",
            *_executive(summary),
            *_warnings(summary.warnings),
            *(block for part in parts for block in _section(part)),
            *_environment(summary),
        )
    )
    return {FILE: f"{text}\n".encode()}


def escape(text: str) -> str:
    """``text`` as one line that Markdown and HTML show as it is."""

    def harmless(found: re.Match[str]) -> str:
        return _ENTITIES[found[0]] if found["entity"] else f"\\{found[0]}"

    return _SPECIAL.sub(harmless, plain(text))


def _suites(parts: Sequence[Section]) -> str:
    return escape(", ".join(dict.fromkeys(part.suite for part in parts))) or "no records"


def _executive(summary: Summary) -> Iterable[str]:
    yield "## Executive summary"
    for table in detailed_tables(summary):
        if not table.empty:
            rows = [(compiler_name(compiler), *cells) for compiler, cells in table.rows]
            yield f"**{escape(table.caption.strip())}**"
            yield _table(("Compiler", *table.columns), rows)
    yield (
        "Only models that passed parity enter an average; the number after the slash counts them all. "
        "Slowdowns count as slowdowns."
    )
    if summary.caveats:
        yield "\n".join(f"- {escape(caveat)}" for caveat in summary.caveats)


def _warnings(findings: Sequence[Finding]) -> Iterable[str]:
    if findings:
        yield "## Warnings"
    for finding in findings:
        yield f"### {escape(finding.title)}: {len(finding.cases)}"
        yield escape(finding.advice)
        yield _list(finding.cases[:SHOWN_CASES])
        if finding.cases[SHOWN_CASES:]:
            yield from _details("more", _list(finding.cases[SHOWN_CASES:]))


def _list(cases: Iterable[str]) -> str:
    return "\n".join(f"- {escape(case)}" for case in cases)


def _section(part: Section) -> Iterable[str]:
    yield f"## {escape(part.title)}"
    if part.rounds:
        yield f"![speedups of {escape(part.suite)}]({plot_name(part.suite, part.dtype)})"
    columns = filled_columns(part)
    yield _table(
        [column.header.replace("\n", " ") for column in columns],
        [cells for _, cells in lines(part, columns)],
        [column.number for column in columns],
    )
    rounds = f"{part.rounds} rounds. " if part.rounds else ""
    yield f"{rounds}A verdict in brackets: parity failed, the speedup counts for nothing."
    for title, texts in explanations(part):
        yield from _details(title, _list(texts))
    yield from _commands(part)


def _commands(part: Section) -> Iterable[str]:
    commands = [plain(c.record.reproduce) for c in part.comparisons if c.record.reproduce]
    if commands:
        yield from _details("Reproduction commands", _fenced(commands))


def _environment(summary: Summary) -> Iterable[str]:
    if not summary.environment:
        return
    yield "## Environment"
    rows = [
        (name, "" if value is None else str(value)) for name, value in sorted(summary.environment.items())
    ]
    yield from _details("Every fact that the workers reported", _table(("fact", "value"), rows))


def _table(header: Sequence[str], rows: Iterable[Sequence[str]], numbers: Sequence[bool] = ()) -> str:
    marks = ["--:" if number else "---" for number in numbers] or ["---"] * len(header)
    body = [header, *rows]
    texts = ["| " + " | ".join(escape(cell) for cell in row) + " |" for row in body]
    return "\n".join((texts[0], "| " + " | ".join(marks) + " |", *texts[1:]))


def _fenced(commands: Sequence[str]) -> str:
    """A code block whose fence is longer than any run of backticks inside."""
    text = "\n".join(commands)
    longest = max((len(run) for run in re.findall(r"`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}sh\n{text}\n{fence}"


def _details(title: str, body: str) -> Iterable[str]:
    yield f"<details>\n<summary>{escape(title)}</summary>"
    yield body
    yield "</details>"
