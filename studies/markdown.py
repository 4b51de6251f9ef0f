"""Tables as Markdown that is also readable as it stands, and the line on the machine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


def table(heads: Sequence[str], lines: Sequence[Sequence[str]]) -> list[str]:
    """Columns as wide as their widest cell; the first is left, the others right."""
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
