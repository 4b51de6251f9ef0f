"""Tables of text: their columns declared by cells; on a terminal, columns without room are omitted."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Generic, TypeVar

from runner.analysis.digits import MISSING
from runner.labels import plain
from runner.reports.parts.fit import WIDE_GAP, widest

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table as Grid
    from rich.text import Text

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """``droppable``: the columns that may be omitted for width, the least important first."""

    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    title: str = ""
    numbers: tuple[bool, ...] = ()
    droppable: tuple[int, ...] = ()

    def filled(self) -> Table:
        """The table without columns that are empty in all rows. None of its columns is droppable."""
        return self._only([i for i in range(len(self.header)) if any(row[i] != MISSING for row in self.rows)])

    def within(self, width: int, gap: int = WIDE_GAP) -> Table:
        """The table without the droppable columns that exceed the width."""
        places = list(range(len(self.header)))
        for column in self.droppable:
            if self._width(places, gap) <= width:
                break
            places.remove(column)
        return self._only(places)

    def _only(self, places: Sequence[int]) -> Table:
        return replace(
            self,
            header=tuple(self.header[i] for i in places),
            rows=tuple(tuple(row[i] for i in places) for row in self.rows),
            numbers=tuple(self.numbers[i] for i in places) if self.numbers else (),
            droppable=(),
        )

    def _width(self, places: Sequence[int], gap: int) -> int:
        widths = (widest((self.header[i], *(row[i] for row in self.rows))) for i in places)
        return sum(widths) + gap * (len(places) - 1)


@dataclass(frozen=True, slots=True)
class Cell(Generic[T]):
    """A column, by what it says of an item."""

    header: str
    text: Callable[[T], str]
    number: bool = False


def table_of(
    title: str, items: Iterable[T], cells: Sequence[Cell[T]], droppable: Collection[str] = (), once: int = 0
) -> Table:
    """A row for each item. ``once``: so many columns are empty where they would repeat the row above."""
    rows: list[tuple[str, ...]] = []
    above: tuple[str, ...] = ()
    for item in items:
        row = tuple(cell.text(item) for cell in cells)
        repeats = row[:once] == above
        rows.append((*("" for _ in above), *row[once:]) if repeats else row)
        above = row[:once]
    header = tuple(cell.header for cell in cells)
    return Table(
        title=title,
        header=header,
        numbers=tuple(cell.number for cell in cells),
        rows=tuple(rows),
        droppable=tuple(header.index(name) for name in droppable),
    )


def optional(value: T | None, text: Callable[[T], str]) -> str:
    return MISSING if value is None else text(value)


def text_for(console: Console, text: str, style: str = "") -> Text:
    """The text, with escapes for characters that cannot be printed or that the console's encoding lacks."""
    from rich.text import Text

    lines = "\n".join(plain(line) for line in text.split("\n"))
    return Text(lines.encode(console.encoding, "backslashreplace").decode(console.encoding), style=style)


def say(console: Console, text: str, style: str = "") -> None:
    """Prints the text without breaking its lines, as for a path that is copied."""
    console.print(text_for(console, text, style), soft_wrap=True)


def grid_for(
    console: Console,
    header: Sequence[str],
    *,
    gap: int = WIDE_GAP,
    numbers: Sequence[bool] = (),
    wrapping: Collection[str] | None = None,
) -> Grid:
    """A grid with these columns and no rows. ``wrapping``: the columns that may wrap; None: the first."""
    from rich import box
    from rich.table import Table as Grid

    # the box divides columns by one space itself
    grid = Grid(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, gap - 1, 0, 0))
    for i, name in enumerate(header):
        grid.add_column(
            text_for(console, name),
            justify="right" if numbers and numbers[i] else "left",
            vertical="top",
            no_wrap=i > 0 if wrapping is None else name not in wrapping,
            overflow="fold",
        )
    return grid
