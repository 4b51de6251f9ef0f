"""The figures that the sources published: ``published_*.csv``, as text.

``training_time``: minutes:seconds of whole training runs on one RTX 3070. ``addition``: an A100 with 40 GB.
``shakespeare``: the source's measured columns that this project knows; they are the test losses, matched to
the sizes by their order.
"""

from __future__ import annotations

import csv
from functools import cache
from pathlib import Path


@cache
def published(table: str) -> tuple[dict[str, str], ...]:
    """The rows of a table, by the heads of its columns."""
    with (Path(__file__).parent / f"published_{table}.csv").open(encoding="utf-8", newline="") as file:
        return tuple(csv.DictReader(file))
