"""Views: tables and lists of sentences that reports show of a subject. ``views.py`` has those of a run."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any, Generic, TypeVar

from runner.analysis.columns import Column
from runner.analysis.results import Finding
from runner.reports.parts.grid import Table, table_of

S = TypeVar("S")
T = TypeVar("T")
Part = tuple[str, Sequence[T]]
"""The title and the rows of a table."""

CONSOLE, MARKDOWN, HTML, JSON = "console", "md", "html", "json"
TABLES, FILES = (CONSOLE, MARKDOWN), (MARKDOWN, HTML, JSON)
EVERYWHERE = (CONSOLE, *FILES)
OPEN_ROWS = 60  # report.md folds a longer table


@dataclass(frozen=True, slots=True)
class View(Generic[S, T]):
    """A table for each of ``parts``, and the rows of all of them as data.

    ``short``: what a console has of the rows, and a sentence on the others. ``notes``: lines below the table.
    ``pictures``: files that report.md shows above it.
    """

    name: str  # its key in JSON
    rows: Callable[[S], Sequence[T]]
    columns: Callable[[S], Iterable[Column[T]]]
    title: str = ""
    _: KW_ONLY
    parts: Callable[[S], Iterable[Part[T]]] | None = None  # None: one table of all rows
    group: Callable[[T], Hashable] = id  # rows in succession that share the texts of ``once``
    short: Callable[[Sequence[T]], tuple[Sequence[T], str]] = lambda rows: (rows, "")
    notes: Callable[[S, Sequence[T]], Iterable[str]] = lambda *_: ()
    pictures: Callable[[S, Sequence[T]], Iterable[str]] = lambda *_: ()
    outlets: tuple[str, ...] = EVERYWHERE
    folded: int = OPEN_ROWS  # report.md folds a table with more rows; 0: every table, with its title

    def tables(self, subject: S, *, short: bool = False) -> tuple[Table, ...]:
        """The tables that have rows, without columns that are empty."""
        parts = [(self.title, self.rows(subject))] if self.parts is None else self.parts(subject)
        columns, tables = [column for column in self.columns(subject) if column.header], []
        for title, every in parts:
            rows, left_out = self.short(every) if short else (every, "")
            notes = tuple(filter(None, (left_out, *self.notes(subject, every))))
            pictures = tuple(dict.fromkeys(self.pictures(subject, every)))
            if rows:
                table = table_of(title, rows, columns, self.group)
                tables.append(replace(table, notes=notes, pictures=pictures))
        return tuple(tables)

    def data(self, subject: S) -> list[dict[str, Any]]:
        """The values of each row by the names of the columns. A missing value has no name."""
        columns = [column for column in self.columns(subject) if column.name]
        return [
            {column.name: value for column in columns if (value := column.value(row)) is not None}
            for row in self.rows(subject)
        ]


@dataclass(frozen=True, slots=True)
class Lists(Generic[S]):
    """Lists of sentences. ``data``: as JSON has them; None: it has none. ``code``: each line is a command."""

    name: str
    title: str
    lists: Callable[[S], Iterable[Finding]]
    data: Callable[[S], Any] | None = None
    code: bool = False
    folded: bool = False
    outlets: tuple[str, ...] = EVERYWHERE
