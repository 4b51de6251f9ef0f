"""CSV files that every reader takes the same way: UTF-8, plain line ends, nothing a spreadsheet would run."""

from __future__ import annotations

import csv
import io
import unicodedata
from collections.abc import Iterable, Sequence

from runner.labels import plain

Cell = float | int | str | bool | None
FORMULA_STARTS = ("=", "+", "-", "@")


def csv_bytes(header: Sequence[str], rows: Iterable[Sequence[Cell]]) -> bytes:
    """One file. Floats have six significant digits; None is an empty cell."""
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow([safe_text(name) for name in header])
    writer.writerows(["" if cell is None else cell_text(cell) for cell in row] for row in rows)
    return file.getvalue().encode()


def cell_text(cell: float | str) -> str:
    if isinstance(cell, float):
        return f"{cell:.6g}"
    if isinstance(cell, str):
        return safe_text(cell)
    return str(cell).lower()  # numbers have no letters


def safe_text(text: str) -> str:
    """One printable line that no spreadsheet takes for a formula: such text gets an apostrophe in front."""
    line = plain(text)
    # some spreadsheets take the wide forms of East Asian keyboards for the same
    start = unicodedata.normalize("NFKC", line.lstrip()[:1])
    return f"'{line}" if start.startswith(FORMULA_STARTS) else line
