"""The comparison as Markdown that fits into a pull request's comment; what is long folds, then is cut."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from runner.changes.changes import Changes
from runner.changes.gates import Outcome
from runner.changes.words import (
    CHANGE_HEADER,
    GROUP_HEADER,
    case_lists,
    change_rows,
    group_rows,
    head_lines,
    threshold_line,
    verdict_line,
)
from runner.digits import MISSING
from runner.reports._blocks import Block, fitted, folded, text
from runner.reports.markdown import LIMIT, escape

OPEN_CASES = 10  # of a list that is not folded away
OPEN_ROWS = 30
EVERYTHING = "--format=json has all of them"


def render_markdown(changes: Changes, outcomes: Sequence[Outcome]) -> str:
    """Under 65,536 bytes. Nothing that a model is called can become markup."""
    return fitted(tuple(_blocks(changes, outcomes)), LIMIT - 1, EVERYTHING)


def _blocks(changes: Changes, outcomes: Sequence[Outcome]) -> Iterator[Block]:
    yield text("## What changed between two runs")
    for outcome in outcomes:
        failed = len(outcome.cases)
        mark = ":x:" if failed else ":white_check_mark:"
        what = escape(f"{outcome.gate.words}: {failed} {outcome.title}")
        yield text(f"{mark} **{what}**")
        if failed:
            yield _list(outcome.cases)
    yield Block(rows=[f"- {escape(line)}" for line in head_lines(changes)])
    rows = group_rows(changes)
    if rows:
        yield _table(GROUP_HEADER, rows)
    found = change_rows(changes)
    if found:
        yield text(f"**{escape(verdict_line(changes))}**")
        table = _table(CHANGE_HEADER, found)
        yield table if len(found) <= OPEN_ROWS else folded(f"All {len(found)} changes", table)
        yield text(escape(threshold_line()))
    for one in case_lists(changes):
        title = escape(f"{one.title}: {len(one.cases)}")
        if len(one.cases) <= OPEN_CASES:
            yield text(f"**{title}**")
            yield _list(one.cases)
        else:
            yield folded(title, _list(one.cases))


def _list(cases: Sequence[str]) -> Block:
    return Block(rows=[f"- {escape(case)}" for case in cases])


def _table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> Block:
    kept = [i for i in range(len(header)) if any(row[i] != MISSING for row in rows)]
    lines = [
        "| " + " | ".join(escape(row[i].replace("\n", " ")) for i in kept) + " |" for row in (header, *rows)
    ]
    marks = "| " + " | ".join("---" for _ in kept) + " |"
    return Block(head=(lines[0], marks), rows=lines[1:])
