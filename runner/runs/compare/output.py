"""The comparison for a terminal, as Markdown for a comment on a pull request, and as JSON for programs."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import fields, is_dataclass, replace
from typing import TYPE_CHECKING, Any

from harness.codec import to_json
from runner.analysis.columns import columns
from runner.analysis.estimate import Estimate, Verdict
from runner.reports.markdown import LIMIT, escape, list_block, table_block
from runner.reports.parts.blocks import MarkdownBlock, fitted, folded, text
from runner.reports.parts.grid import Table, grid_of, say, text_for
from runner.runs.compare.changes import RunChanges
from runner.runs.compare.gates import GateResult
from runner.runs.compare.run import Result, Run
from runner.runs.compare.words import BAD, SIDES, WORDS, head_lines, lists, tables

if TYPE_CHECKING:
    from rich.console import Console

SHOWN_CASES = 20  # of one list on a terminal; the Markdown has more
LEAST_COLUMNS = 4  # from the left, however narrow the console is
STYLES = {WORDS[Verdict.SLOWER]: "bold red", WORDS[Verdict.FASTER]: "green"}
NOTE = "dim"

OPEN = "open, because the interval reaches across the limit (more rounds or --processes narrow it)"
OPEN_CASES = 10  # in Markdown, a list with more cases is folded
OPEN_ROWS = 30
EVERYTHING = "--format=json has all of them"

SCHEMA_VERSION = 2
FACTOR = ("factor", "low", "high", "p_value", "low_90", "high_90")
SIDE = (
    *("failure", "baseline_ms", "candidate_ms", "speedup", "ci_low", "ci_high"),
    *("compilation_latency_s", "memory_ratio", "graph_breaks"),
)
"""The columns of a result in JSON."""


def print_changes(changes: RunChanges, results: Sequence[GateResult], console: Console) -> None:
    """Prints everything; names are text, never markup. Columns without room are omitted and named."""
    for place, line in enumerate(head_lines(changes)):
        if place < len(SIDES):
            say(console, line)  # the path may be copied
        else:
            console.print(text_for(console, line))
    for table, note in tables(changes):
        console.print()
        _print_table(console, table, note)
    for title, cases in lists(changes):
        console.print()
        _print_cases(console, f"{title}: {len(cases)}", cases, bad=title in BAD)
    for result in results:
        console.print()
        print_result(result, console)


def print_result(result: GateResult, console: Console) -> None:
    count = len(result.cases)
    word = "FAILED" if count else "open" if result.open else "passed"
    words = f"--fail-on {result.gate.words}: {word} ({result.title}: {count})"
    _print_cases(console, words, result.cases, bad=bool(count))
    if result.open:
        _print_cases(console, f"    {OPEN}: {len(result.open)}", result.open, bad=False)


def _print_cases(console: Console, title: str, cases: Sequence[str], *, bad: bool) -> None:
    say(console, title, "bold red" if bad else "bold")
    for case in cases[:SHOWN_CASES]:
        say(console, f"    {case}")
    if len(cases) > SHOWN_CASES:
        say(console, f"    and {len(cases) - SHOWN_CASES} more; --format=md has more of them", NOTE)


def _print_table(console: Console, table: Table, note: str) -> None:
    shown = replace(table, droppable=table.header[: LEAST_COLUMNS - 1 : -1]).within(console.width)
    if table.title:
        console.print(text_for(console, table.title, "bold"))
    console.print(grid_of(console, shown, lambda _, text: STYLES.get(text, "")))
    names = ", ".join(name.replace("\n", " ") for name in reversed(shown.omitted))
    for line in (f"Columns omitted for width: {names}; --format=md has all columns." if names else "", note):
        if line:
            console.print(text_for(console, line, NOTE))


def render_markdown(changes: RunChanges, results: Sequence[GateResult]) -> str:
    """The comparison in less than 65,536 bytes. Names are escaped, so that none can become markup."""
    return fitted(tuple(_blocks(changes, results)), LIMIT - 1, EVERYTHING)


def _blocks(changes: RunChanges, results: Sequence[GateResult]) -> Iterator[MarkdownBlock]:
    yield text("## What changed between two runs")
    for result in results:
        failed = len(result.cases)
        mark = ":x:" if failed else ":grey_question:" if result.open else ":white_check_mark:"
        yield text(f"{mark} **{escape(f'{result.gate.words} ({result.title}: {failed})')}**")
        if result.cases:
            yield list_block(result.cases)
        if result.open:
            yield text(escape(f"{OPEN}: {len(result.open)}"))
            yield list_block(result.open)
    yield list_block(head_lines(changes))
    for table, note in tables(changes):
        block = table_block(table)
        yield from _titled(table.title, block, fold=len(table.rows) > OPEN_ROWS)
        if note:
            yield text(escape(note))
    for title, cases in lists(changes):
        yield from _titled(f"{title}: {len(cases)}", list_block(cases), fold=len(cases) > OPEN_CASES)


def _titled(title: str, block: MarkdownBlock, *, fold: bool) -> Iterator[MarkdownBlock]:
    if title and not fold:
        yield text(f"**{escape(title)}**")
    yield folded(escape(title), block) if fold else block


def render_json(changes: RunChanges, results: Sequence[GateResult]) -> str:
    """Complete and without rounding. Infinity and NaN are texts, as in records."""
    gates = [
        {
            "gate": r.gate.words,
            "failed": bool(r.cases),
            "cases": r.cases,
            "open": r.open,
        }
        for r in results
    ]
    whole = {"schema_version": SCHEMA_VERSION, **_plain(changes), "gates": gates}
    if changes.drift is not None:
        whole["drift"]["models"] = changes.drift.n
    return json.dumps(whole, indent=1, allow_nan=False, ensure_ascii=False) + "\n"


def _plain(value: Any) -> Any:
    """The fields of a value. An estimate is its factor with its intervals; a result is its columns."""
    shown: dict[str, Any] = {}
    match value:
        case Estimate():
            shown = {name: getattr(value, name) for name in FACTOR}
        case Result():
            numbers = {name: columns()[name].value(value.comparison) for name in SIDE}
            shown = {"name": value.name, "conditions": value.conditions, "status": value.status, **numbers}
        case Run():
            shown = {"path": str(value.path), "facts": value.facts, "notes": value.notes}
        case tuple():
            return [_plain(item) for item in value]
        case _:
            if not is_dataclass(value):
                return WORDS[value] if isinstance(value, Verdict) else to_json(value)
            shown = {field.name: _plain(getattr(value, field.name)) for field in fields(value)}
    return to_json(shown)
