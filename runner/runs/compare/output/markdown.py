"""The comparison as Markdown for a comment on a pull request. Long parts are folded, then cut."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from runner.reports.markdown import LIMIT, escape, list_block, table_block
from runner.reports.parts.blocks import MarkdownBlock, fitted, folded, text
from runner.reports.parts.grid import Table
from runner.runs.compare.changes import RunChanges
from runner.runs.compare.gates import Outcome
from runner.runs.compare.output.words import (
    GROUP_HEADER,
    case_lists,
    change_header,
    change_rows,
    group_rows,
    head_lines,
    threshold_line,
    verdict_line,
)

OPEN_CASES = 10  # a list with more cases is folded
OPEN_ROWS = 30
EVERYTHING = "--format=json has all of them"


def render_markdown(changes: RunChanges, outcomes: Sequence[Outcome]) -> str:
    """The comparison in less than 65,536 bytes. Names are escaped, so that none can become markup."""
    return fitted(tuple(_blocks(changes, outcomes)), LIMIT - 1, EVERYTHING)


def _blocks(changes: RunChanges, outcomes: Sequence[Outcome]) -> Iterator[MarkdownBlock]:
    yield text("## What changed between two runs")
    for outcome in outcomes:
        failed = len(outcome.cases)
        mark = ":x:" if failed else ":white_check_mark:"
        what = escape(f"{outcome.gate.words} ({outcome.title}: {failed})")
        yield text(f"{mark} **{what}**")
        if failed:
            yield list_block(outcome.cases)
    yield MarkdownBlock(rows=[f"- {escape(line)}" for line in head_lines(changes)])
    rows = group_rows(changes)
    if rows:
        yield _table(GROUP_HEADER, rows)
    found = change_rows(changes)
    if found:
        yield text(f"**{escape(verdict_line(changes))}**")
        table = _table(change_header(changes), found)
        yield table if len(found) <= OPEN_ROWS else folded(f"All {len(found)} changes", table)
        yield text(escape(threshold_line(changes)))
    for one in case_lists(changes):
        title = escape(f"{one.title}: {len(one.cases)}")
        if len(one.cases) <= OPEN_CASES:
            yield text(f"**{title}**")
            yield list_block(one.cases)
        else:
            yield folded(title, list_block(one.cases))


def _table(header: Sequence[str], rows: Sequence[tuple[str, ...]]) -> MarkdownBlock:
    table = Table(header=tuple(name.replace("\n", " ") for name in header), rows=tuple(rows)).filled()
    return table_block(table.header, table.rows, len(table.rows))
