"""Markdown tables with aligned columns, and the line that describes the environment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


def table(heads: Sequence[str], lines: Sequence[Sequence[str]]) -> list[str]:
    """A table with aligned columns: the first column to the left, the others to the right."""
    cells = [[cell.replace("|", "\\|").replace("\n", " ") for cell in line] for line in (heads, *lines)]
    widths = [max(3, *(len(line[column]) for line in cells)) for column in range(len(heads))]
    rows = [
        [cell.ljust(width) if column == 0 else cell.rjust(width) for column, (cell, width) in pairs]
        for pairs in (enumerate(zip(line, widths, strict=True)) for line in cells)
    ]
    rule = [
        ("-" * width) if column == 0 else ("-" * (width - 1) + ":") for column, width in enumerate(widths)
    ]
    return ["| " + " | ".join(row) + " |" for row in (rows[0], rule, *rows[1:])]


def environment_text(environment: Mapping[str, Any]) -> str:
    """``torch 2.13.0, Python 3.11.2, AMD EPYC, 2 threads``"""
    return (
        f"torch {environment.get('torch')}, Python {environment.get('python')}, "
        f"{environment.get('device_name')}, {environment.get('threads')} threads."
    )
