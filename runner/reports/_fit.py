"""Which columns of a section's table a terminal has room for. Whole columns go, in a fixed order."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from runner.reports._sections import Section
from runner.reports._table import Column, filled_columns, lines, verdict_or_status

DROPPED_FIRST = (
    "worst",
    "input",
    "parameters",
    "p",
    "break_even",
    "memory",
    "q",
    "processes",
    "n",
    "compile",
    "eager_tflop",
    "eager_gb",
    "mfu",
    "prefill",
    "parity",  # the verdict's column then shows the status of what did not pass
    "batch",
    "roof",
    "tflop",
    "gb",
    "ms",
    "eager_ms",
)
WIDE_GAP, NARROW_GAP = 2, 1
SHORTEST_NAME = 20  # what a model's name keeps before a column is left out for it


@dataclass(frozen=True, slots=True, kw_only=True)
class Fitted:
    """The table that fits: its columns and rows of text, the space between them, and what was left out."""

    columns: tuple[Column, ...]
    rows: tuple[tuple[str, ...], ...]
    first_lines: tuple[bool, ...]  # whether a row is its model's first
    gap: int
    dropped: tuple[Column, ...]


def fit(section: Section, width: int) -> Fitted:
    """The section's table in ``width`` characters; the columns that always stay may be wider still."""
    everything = filled_columns(section)
    fitted = _fitted(section, everything, (), WIDE_GAP)
    if _total(fitted) <= width:
        return fitted
    dropped: tuple[Column, ...] = ()
    for key in ("", *DROPPED_FIRST):
        dropped += tuple(column for column in everything if column.key == key)
        kept = _kept(everything, dropped)
        fitted = _fitted(section, kept, dropped, NARROW_GAP)
        room = width - _total(fitted) + _widths(fitted)[0]
        if room >= min(SHORTEST_NAME, _widths(fitted)[0]):
            return _with_names_in(fitted, room)
    return fitted


def _kept(everything: Sequence[Column], dropped: Sequence[Column]) -> tuple[Column, ...]:
    kept = tuple(column for column in everything if column not in dropped)
    if all(column.key != "parity" for column in dropped):
        return kept
    return tuple(replace(c, cell=verdict_or_status) if c.key == "verdict" else c for c in kept)


def _fitted(section: Section, columns: tuple[Column, ...], dropped: tuple[Column, ...], gap: int) -> Fitted:
    found = tuple(lines(section, columns))
    return Fitted(
        columns=columns,
        rows=tuple(cells for _, cells in found),
        first_lines=tuple(first for first, _ in found),
        gap=gap,
        dropped=dropped,
    )


def _with_names_in(fitted: Fitted, room: int) -> Fitted:
    """Models' names shortened to ``room`` characters, unless two models would then look the same."""
    names = [row[0] for row in fitted.rows]
    short = [shorten(name, room) for name in names]
    if len(set(short)) < len(set(names)):
        return fitted
    rows = tuple((name, *row[1:]) for name, row in zip(short, fitted.rows, strict=True))
    return replace(fitted, rows=rows)


def shorten(name: str, room: int) -> str:
    """``name`` in ``room`` characters: its middle goes, because families of models begin and end alike."""
    if width_of(name) <= room:
        return name
    tail = (room - 2) // 2
    return f"{name[: room - 2 - tail]}..{name[len(name) - tail :]}"


def widest(texts: Iterable[str]) -> int:
    return max((width_of(line) for text in texts for line in text.split("\n")), default=0)


def width_of(text: str) -> int:
    """Terminal cells, in which an East Asian character takes two."""
    from rich.cells import cell_len

    return cell_len(text)


def _widths(fitted: Fitted) -> list[int]:
    return [
        widest((column.header, *(row[i] for row in fitted.rows))) for i, column in enumerate(fitted.columns)
    ]


def _total(fitted: Fitted) -> int:
    return sum(_widths(fitted)) + fitted.gap * (len(fitted.columns) - 1)
