"""The executive summary in the files of PyTorch's benchmark runner: four CSV tables, and one text file."""

from __future__ import annotations

import io
from collections.abc import Mapping
from html import escape

from runner.analysis.comparison import Summary
from runner.labels import plain
from runner.reports.parts.averages import AverageTable, field_tables
from runner.reports.parts.cells import csv_bytes
from runner.reports.parts.sections import environment_line, protocol_line

FORMATS = ("csv", "txt")
TEXT_FILE = "gh_executive_summary.txt"


def render(summary: Summary) -> Mapping[str, bytes]:
    tables = field_tables(summary)
    files = {f"{table.file}.csv": _csv(table) for table in tables}
    files[TEXT_FILE] = _text(summary, tables).encode()
    return files


def _csv(table: AverageTable) -> bytes:
    """The first column repeats the compiler without a header, as in PyTorch's runner."""
    header = ("", "Compiler", *table.columns)
    return csv_bytes(header, [(compiler, compiler, *cells) for compiler, cells in table.rows])


def _text(summary: Summary, tables: tuple[AverageTable, ...]) -> str:
    caveats = "".join(f"- {escape(plain(caveat))}\n" for caveat in summary.caveats)
    parts = [
        "## Executive Summary ##\n\n",
        f"<details>\n<summary>see more</summary>\n\n{escape(environment_line(summary.environment))}\n\n",
        f"{escape(protocol_line(summary.comparisons))}\n\n{caveats}\n</details>\n\n",
        "To measure performance, compilation latency and memory footprint reduction, models that fail ",
        "parity enter no average; the passrate counts all models. Averages include slowdowns.\n\n",
    ]
    parts += [f"{table.caption}\n~~~\n{_grid(table)}\n~~~\n\n" for table in tables]
    return "".join(parts)


def _grid(table: AverageTable) -> str:
    """A table of + - |, drawn by rich, because rich aligns wide characters."""
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    grid = Table(box=box.ASCII2)
    for name in ("Compiler", *table.columns):
        grid.add_column(Text(plain(name)), justify="center", no_wrap=True)
    for compiler, cells in table.rows:
        grid.add_row(*(Text(plain(cell)) for cell in (compiler, *cells)))
    file = io.StringIO()
    Console(file=file, width=100_000, color_system=None, force_terminal=False).print(grid)
    return file.getvalue().rstrip("\n")
