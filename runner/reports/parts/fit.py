"""Fits a section's table into a terminal: whole columns are omitted, in a fixed order."""

from __future__ import annotations

from collections import Counter
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
SHORTEST_NAME = 20  # a column is omitted if model names would get less room


@dataclass(frozen=True, slots=True, kw_only=True)
class Fitted:
    """The table that fits: its columns and rows of text, the gap between columns, and what was omitted."""

    columns: tuple[Column, ...]
    rows: tuple[tuple[str, ...], ...]
    gap: int
    dropped: tuple[Column, ...]
    of_every_name: str = ""  # the suffix omitted from all models' names: "(small)"


def fit(section: Section, width: int) -> Fitted:
    """The section's table in ``width`` characters. It is wider if the fixed columns need more."""
    everything = filled_columns(section)
    fitted = _fitted(section, everything, (), WIDE_GAP)
    if _total(fitted) <= width:
        return fitted
    dropped: tuple[Column, ...] = ()
    for column in (None, *droppable(everything)):
        dropped += () if column is None else (column,)
        kept = _kept(everything, dropped)
        fitted = _without_shared_bracket(_fitted(section, kept, dropped, NARROW_GAP))
        room = width - _total(fitted) + _widths(fitted)[0]
        if room >= min(SHORTEST_NAME, _widths(fitted)[0]):
            return _with_names_in(fitted, room)
    return fitted


def _kept(everything: Sequence[Column], dropped: Sequence[Column]) -> tuple[Column, ...]:
    """The columns of a narrow table: parity is a word, or takes the verdict's place where it fails."""
    narrow = {"parity": lambda c: parity_word(c.record)}
    if any(column.key == "parity" for column in dropped):
        narrow = {"verdict": verdict_or_status}
    kept = (column for column in everything if column not in dropped)
    return tuple(replace(c, cell=narrow[c.key]) if c.key in narrow else c for c in kept)


def _fitted(section: Section, columns: tuple[Column, ...], dropped: tuple[Column, ...], gap: int) -> Fitted:
    return Fitted(columns=columns, rows=tuple(lines(section, columns)), gap=gap, dropped=dropped)


def _without_shared_bracket(fitted: Fitted) -> Fitted:
    """Moves a suffix in brackets that all models share out of their names."""
    brackets = {_parts(row[0])[1] for row in fitted.rows if row[0]}
    if len(brackets) != 1 or brackets == {""}:
        return fitted
    rows = tuple((_parts(name)[0], *others) for name, *others in fitted.rows)
    return replace(fitted, rows=rows, of_every_name=brackets.pop().strip())


def _with_names_in(fitted: Fitted, room: int) -> Fitted:
    short = shortened((row[0] for row in fitted.rows), room)
    return replace(fitted, rows=tuple((short[name], *others) for name, *others in fitted.rows))


def shortened(names: Iterable[str], room: int) -> dict[str, str]:
    """Each name in ``room`` characters. Names that would become equal stay whole."""
    short = {name: shorten(name, room) for name in names}
    count = Counter(short.values())
    return {name: text if count[text] == 1 else name for name, text in short.items()}


def shorten(name: str, room: int) -> str:
    """``name`` in ``room`` characters, with the middle removed.

    A suffix in brackets is shortened separately, so that the end of the name stays visible.
    """
    if width_of(name) <= room:
        return name
    stem, bracket = _parts(name)
    if bracket:
        bracket = _without_middle(bracket, room // 2)
    return _without_middle(stem, room - width_of(bracket)) + bracket


def _parts(name: str) -> tuple[str, str]:
    """``NanoGPT (small)`` -> ``NanoGPT`` and `` (small)``"""
    stem, opening, inside = name.partition(" (")
    return (stem, opening + inside) if stem and inside.endswith(")") else (name, "")


def _without_middle(text: str, room: int) -> str:
    if width_of(text) <= room:
        return text
    tail = (room - 2) // 2
    return f"{text[: room - 2 - tail]}..{text[len(text) - tail :]}"


def widest(texts: Iterable[str]) -> int:
    return max((width_of(line) for text in texts for line in text.split("\n")), default=0)


def width_of(text: str) -> int:
    """Width in terminal cells; an East Asian character takes two."""
    from rich.cells import cell_len

    return cell_len(text)


def _widths(fitted: Fitted) -> list[int]:
    return [
        widest((column.header, *(row[i] for row in fitted.rows))) for i, column in enumerate(fitted.columns)
    ]


def _total(fitted: Fitted) -> int:
    return sum(_widths(fitted)) + fitted.gap * (len(fitted.columns) - 1)
