"""report.md: the run as text that fits into a comment on a pull request or an issue.

Names are escaped, so that none can become markup. Long tables are folded. If the report
exceeds the limit of a comment, the longest tables and lists are cut.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, takewhile
from typing import Any, TypeVar

from runner.analysis.results import Finding, Summary
from runner.names import cut, plain
from runner.reports.pages.rows import title
from runner.reports.parts.grid import Table
from runner.reports.parts.sections import environment_line, program_text, protocol_line
from runner.reports.parts.view import MARKDOWN, Lists, View
from runner.reports.views import VIEWS

S = TypeVar("S")
FORMATS = ("md",)
FILE = "report.md"
LIMIT = 65_536  # bytes; GitHub allows as many characters in a comment
SHOWN_CASES = 20  # of each warning; the rest is folded
OF_SUMMARY, LEAST_OF_SUMMARY = ("answers", "groups"), 6_000  # views of which so many bytes are never cut
LONGEST_LINE = 600  # characters
EVERYTHING = "report.html and summary.json have all of them"
CUT = "\n\n(cut)\n"  # the end of a document of which even the titles are too long

# Characters that can start a tag, an entity or a mention, or close a link's text, emphasis, code or a cell.
_ENTITIES = {"<": "&lt;", "&": "&amp;", "@": "&#64;"}
_SPECIAL = re.compile(
    r"(?P<entity><(?=[A-Za-z/!?])|&|@)|(?P<mark>[\\`*|~$]|\](?=[(\[:])|(?<!\w)_|_(?!\w)|^[#>+-])"
)


def render(summary: Summary) -> Mapping[str, bytes]:
    machine = (environment_line(summary.environment), program_text(summary.environment))
    blocks = (
        text(f"# Eager against compiled: {escape(cut(title(summary), LONGEST_LINE))}"),
        text(f"{escape(cut(', '.join(filter(None, machine)), LONGEST_LINE))}."),
        text(f"Protocol: {escape(cut(protocol_line(summary.comparisons), LONGEST_LINE))}."),
        *(block for view in VIEWS for block in view_blocks(view, summary)),
    )
    return {FILE: fitted(blocks, LIMIT).encode()}


def escape(text: str) -> str:
    """``text`` as one line that Markdown and HTML show unchanged."""

    def harmless(match: re.Match[str]) -> str:
        return _ENTITIES[match[0]] if match["entity"] else f"\\{match[0]}"

    return _SPECIAL.sub(harmless, plain(text))


def view_blocks(view: View[S, Any] | Lists[S], subject: S) -> Iterator[MarkdownBlock]:
    least = LEAST_OF_SUMMARY if view.name in OF_SUMMARY else 0
    if isinstance(view, Lists):
        lists = [*view.lists(subject)]
        if lists and view.title:
            yield text(f"## {escape(view.title)}")
        for listed in lists:
            yield from (replace(block, least=least) for block in _listed(view, listed))
        return
    for table in view.tables(subject) if MARKDOWN in view.outlets else ():
        count, block = len(table.rows), replace(table_block(table), least=least)
        if not view.folded:
            yield folded(escape(table.title), block)
            continue
        if table.title:
            yield text(f"## {escape(table.title)}")
        for name in table.pictures:
            yield text(f"![{view.name}]({name})")
        yield block if count <= view.folded else folded(f"All {count} rows", block)
        yield from (text(escape(note)) for note in table.notes)


def _listed(view: Lists[S], listed: Finding) -> Iterator[MarkdownBlock]:
    if view.folded:
        lines = _fenced(listed.cases) if view.code else list_block(listed.cases)
        yield folded(escape(listed.title), lines)
        return
    if listed.title:
        yield text(f"### {escape(listed.title)}: {len(listed.cases)}")
    if listed.advice:
        yield text(escape(listed.advice))
    most = SHOWN_CASES if listed.title else len(listed.cases)
    yield list_block(listed.cases[:most])
    if listed.cases[most:]:
        yield folded("more", list_block(listed.cases[most:]))


def list_block(cases: Iterable[str]) -> MarkdownBlock:
    return MarkdownBlock(rows=[f"- {escape(case)}" for case in cases])


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


# -- blocks within a limit: the longest tables and lists are cut ------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class MarkdownBlock:
    """A paragraph, table, list or code block. Only ``rows`` can be cut, from the end.

    ``more`` counts rows that were not rendered, because no document has room for them.
    """

    head: tuple[str, ...] = ()
    rows: Sequence[str] = ()
    more: int = 0
    foot: tuple[str, ...] = ()
    least: int = 0  # bytes of rows that it keeps, however long the document is
    fold: str | None = None  # title of the fold around the block; None: not folded

    def within(self, room: int, everything: str = EVERYTHING) -> str:
        """The block with the first rows that fit into ``room`` bytes, and the number of omitted rows.

        ``everything`` names the files that have all rows.
        """
        room = max(room, self.least)
        sizes = accumulate(map(_bytes, self.rows))
        shown = sum(1 for _ in takewhile(lambda size: size <= room, sizes))
        left = len(self.rows) + self.more - shown
        body = "\n".join((*self.head, *self.rows[:shown], *self.foot)) if shown or not left else ""
        what = "row" if left == 1 else "rows"
        note = f"({left:,} {what} omitted, to keep this short: {everything}.)" if left else ""
        parts = [part for part in (body, note) if part]
        if self.fold is not None:
            parts = [f"<details>\n<summary>{self.fold}</summary>", *parts, "</details>"]
        return "\n\n".join(parts)


def text(line: str) -> MarkdownBlock:
    return MarkdownBlock(head=(line,))


def folded(title: str, block: MarkdownBlock) -> MarkdownBlock:
    """``title`` is Markdown."""
    return replace(block, fold=title)


def fitted(blocks: Sequence[MarkdownBlock], limit: int, everything: str = EVERYTHING) -> str:
    """The document, of at most ``limit`` bytes. ``everything`` names the files that have all rows.

    If the document is too long, all blocks get the same room for rows, as large as possible:
    the longest blocks are cut, and short blocks stay whole. If it is still too long, it ends
    early.
    """

    def document(room: int) -> str:
        return "\n\n".join(block.within(room, everything) for block in blocks) + "\n"

    longest = max((sum(map(_bytes, block.rows)) for block in blocks), default=0)
    if _bytes(whole := document(longest)) <= limit + 1:
        return whole
    fit = bisect_right(range(longest), limit + 1, key=lambda room: _bytes(document(room)))
    short = document(max(0, fit - 1))
    if _bytes(short) <= limit + 1:
        return short
    return short.encode()[: limit - len(CUT)].decode(errors="ignore") + CUT


def _bytes(row: str) -> int:
    """With the end of its line."""
    return len(row.encode()) + 1
