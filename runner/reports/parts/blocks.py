"""Markdown within a limit: if a document of blocks is too long, its longest tables and lists are cut."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, takewhile

EVERYTHING = "report.html and summary.json have all of them"
CUT = "\n\n(cut)\n"  # the end of a document of which even the titles are too long


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
