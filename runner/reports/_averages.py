"""The four tables of the executive summary: a row a compiler, a column a section."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from runner.comparison import GroupSummary, Summary
from runner.digits import ratio_text, seconds_text, speedup_text
from runner.reports._sections import column_titles, compilers, sections

Cell = Callable[[GroupSummary], str]


@dataclass(frozen=True, slots=True, kw_only=True)
class AverageTable:
    """One table as text. A cell without a number is empty. ``rows``: (compiler, one cell a column)."""

    file: str
    caption: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, tuple[str, ...]], ...]

    @property
    def empty(self) -> bool:
        return not any(cell for _, cells in self.rows for cell in cells)


def field_tables(summary: Summary) -> tuple[AverageTable, ...]:
    """With the captions and cells of the field's runner: ``97%, 58/60``, ``1.23x``, ``12.34``, ``0.95x``."""
    return (
        _table(summary, "passrate", "Passrate", _passrate),
        _table(summary, "geomean", "Geometric mean speedup ", _geomean),
        _table(summary, "comp_time", "Mean compilation time (seconds)", _compilation),
        _table(summary, "memory", "Peak memory footprint compression ratio (higher is better)", _memory),
    )


def detailed_tables(summary: Summary) -> tuple[AverageTable, ...]:
    """The same with intervals over the models, and what each average is an average of."""
    return (
        _table(summary, "passrate", "Passrate", _passrate),
        _table(
            summary, "geomean", "Geometric mean speedup [95 % interval over models], models", _geomean_in_full
        ),
        _table(summary, "comp_time", "Mean compilation time (seconds), models", _compilation_in_full),
        _table(
            summary,
            "memory",
            "Peak memory footprint compression ratio (higher is better), models",
            _memory_in_full,
        ),
    )


def _table(summary: Summary, file: str, caption: str, cell: Cell) -> AverageTable:
    parts = sections(summary)
    found = [{group.compiler: cell(group) for group in part.groups} for part in parts]
    rows = tuple(
        (compiler, tuple(cells.get(compiler, "") for cells in found))
        for compiler in compilers(summary)
        if any(compiler in cells for cells in found)
    )
    return AverageTable(file=file, caption=caption, columns=column_titles(parts), rows=rows)


def _passrate(group: GroupSummary) -> str:
    return f"{group.pass_share:.0%}, {group.passed}/{group.total}"


def _geomean(group: GroupSummary) -> str:
    return ratio_text(group.geomean_speedup) if group.geomean_speedup is not None else ""


def _geomean_in_full(group: GroupSummary) -> str:
    if group.geomean_speedup is None:
        return ""
    text = speedup_text(group.geomean_speedup, group.geomean_low, group.geomean_high)
    return f"{text}, {group.averaged}/{group.total}"


def _compilation(group: GroupSummary) -> str:
    mean = group.mean_compilation_latency_s
    return f"{mean:.2f}" if mean is not None else ""


def _compilation_in_full(group: GroupSummary) -> str:
    mean = group.mean_compilation_latency_s
    return f"{seconds_text(mean)}, {group.compilation_n}/{group.total}" if mean is not None else ""


def _memory(group: GroupSummary) -> str:
    return ratio_text(group.mean_memory_ratio) if group.mean_memory_ratio is not None else ""


def _memory_in_full(group: GroupSummary) -> str:
    mean = group.mean_memory_ratio
    return f"{ratio_text(mean)}, {group.memory_n}/{group.total}" if mean is not None else ""
