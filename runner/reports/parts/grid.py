"""Tables of text: columns, rows, and which of the columns fit into a terminal."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import TYPE_CHECKING, TypeVar

from runner.analysis.columns import Column
from runner.analysis.digits import MISSING
from runner.names import plain

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table as Grid
    from rich.text import Text

T = TypeVar("T")
Number = float | int | None
WIDE_GAP, NARROW_GAP = 2, 1  # spaces between columns
SHORTEST_NAME = 36  # a column is omitted rather than that a shorter name in the first column wraps


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """``droppable``: the headers that may be omitted for width, the least important first."""

    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    title: str = ""
    numbers: tuple[bool, ...] = ()
    droppable: tuple[str, ...] = ()
    omitted: tuple[str, ...] = ()
    gap: int = WIDE_GAP
    brief: tuple[tuple[str, ...], ...] = ()  # rows with shorter texts, if no column is left to omit
    notes: tuple[str, ...] = ()  # lines below it
    pictures: tuple[str, ...] = ()  # the files of those above it

    def filled(self) -> Table:
        """The table without columns that are empty in all rows."""
        columns = enumerate(self.header)
        empty = {name for i, name in columns if {row[i] for row in self.rows} <= {MISSING, ""}}
        return self._without(empty)

    def within(self, width: int) -> Table:
        """The table in ``width`` characters: columns closer together, fewer columns, then brief texts."""
        if self.width() <= width:
            return self
        for count in range(len(self.droppable) + 1):
            omitted = self.droppable[:count]
            table = replace(self._without(omitted), gap=NARROW_GAP, omitted=omitted)
            if table.width(SHORTEST_NAME) <= width:
                break
        return replace(table, rows=table.brief or table.rows) if not table.droppable else table

    def _without(self, headers: Collection[str]) -> Table:
        places = [i for i, name in enumerate(self.header) if name not in headers]
        return replace(
            self,
            header=tuple(self.header[i] for i in places),
            rows=tuple(tuple(row[i] for i in places) for row in self.rows),
            brief=tuple(tuple(row[i] for i in places) for row in self.brief),
            numbers=tuple(self.numbers[i] for i in places) if self.numbers else (),
            droppable=tuple(name for name in self.droppable if name not in headers),
        )

    def width(self, longest_name: int | None = None) -> int:
        """``longest_name``: the first column may wrap to this width."""
        from rich.cells import cell_len  # an East Asian character takes two cells

        widths = [
            max(cell_len(line) for text in cells for line in text.split("\n"))
            for cells in zip(self.header, *self.rows, strict=True)
        ]
        first = min(widths[0], longest_name or widths[0]) if widths else 0
        return first + sum(widths[1:]) + self.gap * (len(widths) - 1)


def table_of(
    title: str, items: Iterable[T], columns: Iterable[Column[T]], group: Callable[[T], object] = id
) -> Table:
    """A row for each item, without columns that are empty. ``group``: equal for items that share a text."""
    shown = [column for column in columns if column.header]
    groups = [tuple(members) for _, members in groupby(items, key=group)]

    def rows(columns: Iterable[Column[T]]) -> tuple[tuple[str, ...], ...]:
        texts = ([_texts(members, column) for column in columns] for members in groups)
        return tuple(row for of_group in texts for row in zip(*of_group, strict=True))

    brief = [replace(column, text=column.brief or column.text, brief=None) for column in shown]
    return Table(
        title=title,
        header=tuple(column.header for column in shown),
        numbers=tuple(column.is_number for column in shown),
        rows=rows(shown),
        brief=rows(brief) if any(column.brief for column in shown) else (),
        droppable=tuple(c.header for c in sorted(shown, key=lambda column: -column.drop) if c.drop),
    ).filled()


def _texts(members: Sequence[T], column: Column[T]) -> list[str]:
    texts = [column.cell(item) for item in members]
    if not column.once:
        return texts
    # the first item may lack what the others know
    shown = next((text for text in texts if text != MISSING), MISSING)
    once = [shown]
    for text in texts[1:]:
        once.append("" if text in (shown, MISSING) else text)
        shown = once[-1] or shown
    return once


def optional(value: T | None, text: Callable[[T], str]) -> str:
    return MISSING if value is None else text(value)


def plain_lines(text: str) -> str:
    """Text, possibly of several lines. Other unprintable characters become visible escapes."""
    return "\n".join(map(plain, text.split("\n")))


def text_for(console: Console, text: str, style: str = "") -> Text:
    """The text, with escapes for characters that cannot be printed or that the console's encoding lacks."""
    from rich.text import Text

    printable = plain_lines(text).encode(console.encoding, "backslashreplace")
    return Text(printable.decode(console.encoding), style=style)


def say(console: Console, text: str, style: str = "") -> None:
    """Prints the text without breaking its lines, as for a path that is copied."""
    console.print(text_for(console, text, style), soft_wrap=True)


def grid_of(console: Console, table: Table, style: Callable[[str, str], str]) -> Grid:
    """The table for the console. ``style``: of a text below a header. Only the first column wraps."""
    from rich import box
    from rich.table import Table as Grid

    # the box divides columns by one space itself
    grid = Grid(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, table.gap - 1, 0, 0))
    for i, name in enumerate(table.header):
        justify = "right" if table.numbers and table.numbers[i] else "left"
        header = text_for(console, name)
        grid.add_column(header, justify=justify, vertical="top", no_wrap=i > 0, overflow="fold")  # type: ignore[arg-type]
    for row in table.rows:
        cells = zip(table.header, row, strict=True)
        grid.add_row(*(text_for(console, text, style(name, text)) for name, text in cells))
    return grid
