"""Tables in Markdown, what the sources published, and their claims beside the results of a run."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tabulate import tabulate

HOLDS, FAILS, OPEN = "yes", "NOT in this run", "cannot tell"
NOT_SHOWN = "not shown"
"""The run was too short for the claim: neither shown nor refuted. The result says what it would take."""
NOT_JUDGED = "not judged"
Judged = tuple[str, str]
"""What the run shows, and whether the claim holds."""


def table(heads: Sequence[str], lines: Sequence[Sequence[str]]) -> list[str]:
    """A table with aligned columns: the first column to the left, the others to the right."""
    cells = [[cell.replace("|", "\\|").replace("\n", " ") for cell in line] for line in (heads, *lines)]
    align = ["left", *["right"] * (len(heads) - 1)] if lines else None
    text = tabulate(cells[1:], cells[0], tablefmt="pipe", disable_numparse=True, colalign=align)
    return text.splitlines()


@cache
def published(name: str) -> tuple[dict[str, str], ...]:
    """The rows of a table of figures that a source published, by the heads of its columns, as text.

    ``training_time``: minutes:seconds of whole training runs on one RTX 3070. ``addition``: an A100 with
    40 GB. ``shakespeare``: the source's measured columns that this project knows; they are the test losses,
    matched to the sizes by their order.
    """
    with (Path(__file__).parent / f"published_{name}.csv").open(encoding="utf-8", newline="") as file:
        return tuple(csv.DictReader(file))


@dataclass(frozen=True, slots=True, kw_only=True)
class Expectation:
    """``title``: what the claim is about, if a report has the same claim several times."""

    title: str = ""
    expected: str
    found: str
    holds: str


def expectation_table(rows: Sequence[Expectation], *, first: str = "", judged: bool = True) -> list[str]:
    """The rows as a table. ``first``: the head of the column of titles; "" if there is none."""
    lines = [
        [*([row.title] if first else []), row.expected, row.found, row.holds if judged else NOT_JUDGED]
        for row in rows
    ]
    return table([*([first] if first else []), "expected", "found", "holds"], lines)
