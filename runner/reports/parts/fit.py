"""Fits a section's table into a terminal: whole columns are omitted, in a fixed order. Long names wrap."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from runner.reports.parts.sections import Section
from runner.reports.parts.table import (
    Column,
    droppable,
    filled_columns,
    lines,
    parity_word,
    verdict_or_status,
)

WIDE_GAP, NARROW_GAP = 2, 1
SHORTEST_NAME = 30  # a column is omitted rather than that a shorter name wraps


@dataclass(frozen=True, slots=True, kw_only=True)
class Fitted:
    """The table that fits: its columns and rows of text, the gap between columns, and what was omitted."""

    columns: tuple[Column, ...]
    rows: tuple[tuple[str, ...], ...]
    gap: int
    dropped: tuple[Column, ...] = ()

    def width(self, longest_name: int | None = None) -> int:
        """``longest_name``: names in the first column may wrap to this width."""
        cells = zip(*([column.header for column in self.columns], *self.rows), strict=True)
        names, *others = map(widest, cells)
        return min(names, longest_name or names) + sum(others) + self.gap * len(others)


def fit(section: Section, width: int) -> Fitted:
    """The section's table in ``width`` characters. It is wider if the fixed columns need more."""
    everything = filled_columns(section)
    table = Fitted(columns=everything, rows=tuple(lines(section, everything)), gap=WIDE_GAP)
    if table.width() <= width:
        return table
    order = droppable(everything)
    for count in range(len(order) + 1):
        dropped = tuple(order[:count])
        columns = _narrow(everything, dropped)
        rows = tuple(lines(section, columns))
        table = Fitted(columns=columns, rows=rows, gap=NARROW_GAP, dropped=dropped)
        if table.width(SHORTEST_NAME) <= width:
            break
    return table


def _narrow(columns: Sequence[Column], dropped: Sequence[Column]) -> tuple[Column, ...]:
    """The columns that stay: parity is a word, or takes the verdict's place where it fails."""
    cells = {"parity": lambda c: parity_word(c.record)}
    if any(column.key == "parity" for column in dropped):
        cells = {"verdict": verdict_or_status}
    left = (column for column in columns if column not in dropped)
    return tuple(replace(c, cell=cells[c.key]) if c.key in cells else c for c in left)


def widest(texts: Iterable[str]) -> int:
    """Of all lines, in terminal cells; an East Asian character takes two."""
    from rich.cells import cell_len

    return max((cell_len(line) for text in texts for line in text.split("\n")), default=0)
