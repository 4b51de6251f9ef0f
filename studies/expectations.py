"""Tables in Markdown, and a claim of a published study beside the result of a run, with the verdict."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

HOLDS, FAILS, OPEN = "yes", "NOT in this run", "cannot tell"
NOT_SHOWN = "not shown"
"""The run was too short for the claim: neither shown nor refuted. The result says what it would take."""
NOT_JUDGED = "not judged"


def table(heads: Sequence[str], lines: Sequence[Sequence[str]]) -> list[str]:
    """A table with aligned columns: the first column to the left, the others to the right."""
    cells = [[cell.replace("|", "\\|").replace("\n", " ") for cell in line] for line in (heads, *lines)]
    widths = [max(3, *map(len, column)) for column in zip(*cells, strict=True)]
    cells.insert(1, ["-" * width if not n else "-" * (width - 1) + ":" for n, width in enumerate(widths)])
    return [
        "| " + " | ".join(f"{cell:{'>' if n else '<'}{widths[n]}}" for n, cell in enumerate(line)) + " |"
        for line in cells
    ]


def environment_text(environment: Mapping[str, Any]) -> str:
    """``torch 2.13.0, Python 3.11.2, AMD EPYC, 2 threads``"""
    return (
        f"torch {environment.get('torch')}, Python {environment.get('python')}, "
        f"{environment.get('device_name')}, {environment.get('threads')} threads."
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Expectation:
    """``title``: what the claim is about, if a report has the same claim several times."""

    title: str = ""
    expected: str
    found: str
    holds: str


def expectation_table(found: Sequence[Expectation], *, first: str = "", judged: bool = True) -> list[str]:
    """The expectations as a table. ``first``: the head of the column of titles; "" if there is none."""
    lines = [
        [*([one.title] if first else []), one.expected, one.found, one.holds if judged else NOT_JUDGED]
        for one in found
    ]
    return table([*([first] if first else []), "expected", "found", "holds"], lines)
