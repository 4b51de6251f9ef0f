"""The tables of averages: one row for each compiler, one column for each section."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from harness.declared import Metric
from harness.metrics import declared
from runner.analysis.comparison import GroupSummary, Summary
from runner.analysis.digits import metric_text, speedup_text
from runner.reports.parts.sections import column_titles, compilers, sections

Cell = Callable[[GroupSummary], str]


@dataclass(frozen=True, slots=True, kw_only=True)
class AverageTable:
    """One table as text. A cell without a number is empty. ``rows``: (compiler, cells)."""

    caption: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, tuple[str, ...]], ...]


def averages_note(summary: Summary) -> str:
    """What enters an average."""
    checked = any(group.checked for group in summary.groups)
    enter = "Only models that passed parity enter" if checked else "Parity was not checked; all models enter"
    return f"{enter} an average; the number after the slash counts all models. Averages include slowdowns."


def detailed_tables(summary: Summary) -> tuple[AverageTable, ...]:
    """The pass rate and the averages, with intervals over the models and the number of models of each.

    Tables without a number are left out; a group of one model has no average.
    """
    tables = (
        _table(summary, "Passrate [95 % interval, Wilson]", _passrate),
        _table(
            summary,
            "Geometric mean speedup [95 % interval for models like these], models",
            _geomean_in_full,
        ),
        _table(summary, "Geometric mean speedup [95 % interval for these models]", _geomean_of_these),
        *_common(summary),
        *(_means(summary, one) for one in declared().averages()),
    )
    return tuple(table for table in tables if any(cell for _, cells in table.rows for cell in cells))


def _table(summary: Summary, caption: str, cell: Cell) -> AverageTable:
    parts = tuple(part for part in sections(summary) if any(map(_several, part.groups)))
    found = [{group.compiler: cell(group) for group in part.groups if _several(group)} for part in parts]
    rows = tuple(
        (compiler, tuple(cells.get(compiler, "") for cells in found))
        for compiler in compilers(summary)
        if any(compiler in cells for cells in found)
    )
    return AverageTable(caption=caption, columns=column_titles(parts), rows=rows)


def _several(group: GroupSummary) -> bool:
    """An average over one model would be the model's own number, with another interval."""
    return group.total > 1


def _passrate(group: GroupSummary) -> str:
    if not group.checked or group.pass_low is None or group.pass_high is None:
        return ""
    interval = f"[{group.pass_low:.0%}, {group.pass_high:.0%}]"
    return f"{group.pass_share:.0%} {interval}, {group.passed}/{group.total}"


def _geomean_of_these(group: GroupSummary) -> str:
    if group.averaged < 2:
        return ""
    return speedup_text(group.geomean_speedup, group.these_low, group.these_high)


def _common(summary: Summary) -> tuple[AverageTable, ...]:
    """Over the models that every compiler passed; () where these are the models of every average."""
    shown = [group for group in summary.groups if group.averaged]
    if all(group.common_models == group.averaged for group in shown):
        return ()
    caption = "Geometric mean speedup over the models that every compiler passed, models"
    return (_table(summary, caption, _geomean_in_common),)


def _geomean_in_common(group: GroupSummary) -> str:
    if group.common_models < 2:
        return ""
    text = speedup_text(group.common_geomean, group.common_low, group.common_high)
    return f"{text}, {group.common_models}/{group.total}"


def _geomean_in_full(group: GroupSummary) -> str:
    if group.averaged < 2:
        return ""
    text = speedup_text(group.geomean_speedup, group.geomean_low, group.geomean_high)
    return f"{text}, {group.averaged}/{group.total}"


def _means(summary: Summary, metric: Metric) -> AverageTable:
    """A metric's mean over the models, with the number of models."""
    average = metric.average
    assert average is not None

    def cell(group: GroupSummary) -> str:
        mean = group.means[metric.name]
        return (
            ""
            if mean.value is None or mean.n < 2
            else f"{metric_text(mean.value, metric)}, {mean.n}/{group.total}"
        )

    return _table(summary, f"{average.caption}, models", cell)
