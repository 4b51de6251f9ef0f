"""CSV files that all programs read alike: UTF-8, Unix line ends, no text that is a formula."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from typing import TYPE_CHECKING

from runner.labels import plain

if TYPE_CHECKING:
    import pandas as pd

FORMULA_STARTS = ("=", "+", "-", "@")


def csv_of(table: pd.DataFrame, headers: Sequence[str]) -> bytes:
    """One file, with these headers. Floats have six significant digits; a missing value is an empty cell."""
    texts = {
        name: column.map(safe_text if column.dtype == "string" else _truth_text, na_action="ignore")
        for name, column in table.items()
        if column.dtype in ("string", "boolean")
    }
    file: str = table.assign(**texts).to_csv(
        index=False, header=list(headers), float_format="%.6g", lineterminator="\n"
    )
    return file.encode()


def _truth_text(value: bool) -> str:
    return str(value).lower()


def safe_text(text: str) -> str:
    """One printable line. Text that a spreadsheet would run as a formula gets an apostrophe in front."""
    line = plain(text)
    # some spreadsheets also accept the full-width characters of East Asian keyboards
    start = unicodedata.normalize("NFKC", line.lstrip()[:1])
    return f"'{line}" if start.startswith(FORMULA_STARTS) else line
