"""The comparison as Markdown for a comment on a pull request. Long parts are folded, then cut."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from runner.reports.markdown import LIMIT, escape, list_block, table_block
from runner.reports.parts.blocks import MarkdownBlock, fitted, folded, text
from runner.runs.compare.changes import RunChanges
from runner.runs.compare.gates import GateResult
from runner.runs.compare.output.words import Shown, everything, head_lines

OPEN_CASES = 10  # a list with more cases is folded
OPEN_ROWS = 30
EVERYTHING = "--format=json has all of them"


def render_markdown(changes: RunChanges, results: Sequence[GateResult]) -> str:
    """The comparison in less than 65,536 bytes. Names are escaped, so that none can become markup."""
    return fitted(tuple(_blocks(changes, results)), LIMIT - 1, EVERYTHING)


def _blocks(changes: RunChanges, results: Sequence[GateResult]) -> Iterator[MarkdownBlock]:
    yield text("## What changed between two runs")
    for result in results:
        failed = len(result.cases)
        mark = ":x:" if failed else ":white_check_mark:"
        what = escape(f"{result.gate.words} ({result.title}: {failed})")
        yield text(f"{mark} **{what}**")
        if failed:
            yield list_block(result.cases)
    yield list_block(head_lines(changes))
    for shown in everything(changes):
        yield from _shown(shown)


def _shown(shown: Shown) -> Iterator[MarkdownBlock]:
    if shown.table is None:
        title, rows, most = f"{shown.title}: {len(shown.cases)}", len(shown.cases), OPEN_CASES
        block = list_block(shown.cases)
    else:
        header, rows, most = (
            [name.replace("\n", " ") for name in shown.table.header],
            len(shown.table.rows),
            OPEN_ROWS,
        )
        title, block = shown.title, table_block(header, shown.table.rows, rows)
    if rows > most:
        yield folded(escape(title), block)
    else:
        if title:
            yield text(f"**{escape(title)}**")
        yield block
    if shown.note:
        yield text(escape(shown.note))
