"""The table of averages: a row for each section and compiler."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial

from harness.declared import Metric
from harness.metrics import declared
from runner.analysis.comparison import GroupSummary, Summary
from runner.analysis.digits import MISSING, speedup_text, steps_text, with_unit
from runner.reports.parts.grid import Cell, Table, table_of
from runner.reports.parts.sections import column_titles, compiler_name, sections

TITLE = "Averages over models. Geometric mean speedup, other means are arithmetic"
Text = Callable[[GroupSummary], str]


def averages_note(summary: Summary) -> str:
    """What enters an average."""
    checked = any(group.checked for group in summary.groups)
    enter = "Only models that passed parity enter" if checked else "Parity was not checked; all models enter"
    return f"{enter} an average; the number after the slash counts all models. Averages include slowdowns."


def averages_tables(summary: Summary) -> tuple[Table, ...]:
    """One table, without columns that are empty; () if no section has several models.

    An average over one model would be the model's own number, with another interval.
    """
    parts = tuple(part for part in sections(summary) if any(group.total > 1 for group in part.groups))
    titles = zip(column_titles(parts), parts, strict=True)
    rows = [(title, group) for title, part in titles for group in part.groups if group.total > 1]
    cells: list[Cell[tuple[str, GroupSummary]]] = []
    if len(parts) > 1:
        cells.append(Cell("models", lambda row: row[0]))
    cells.append(Cell("compiler", lambda row: compiler_name(row[1].compiler)))
    names = len(cells)
    cells += [Cell(header, partial(_cell, text)) for header, text in _columns(summary)]
    table = table_of(TITLE, rows, cells).filled()
    if len(table.header) <= names:
        return ()
    return (replace(table, droppable=tuple(range(len(table.header) - 1, names, -1))),)


def _cell(text: Text, row: tuple[str, GroupSummary]) -> str:
    return text(row[1]) or MISSING


def _columns(summary: Summary) -> Iterator[tuple[str, Text]]:
    """Header and text of each column, the most important first. Without a number, the text is empty."""
    yield "speedup, models like these\n[95 % interval], n", _speedup
    yield "pass rate\n[95 % interval], n", _passrate
    for metric in declared().averages():
        yield f"{metric.average.heading if metric.average else ''}\nmean, n", partial(_mean, metric)
    yield "break-even steps, median of all\npay, median of these; never", _break_even
    yield "speedup, these models\n[95 % interval]", _speedup_of_these
    if any(group.common_models != group.averaged for group in summary.groups if group.averaged):
        yield "speedup, models that all compilers passed\n[95 % interval], n", _speedup_in_common


def _passrate(group: GroupSummary) -> str:
    if not group.checked or group.pass_low is None or group.pass_high is None:
        return ""
    interval = f"[{group.pass_low:.0%}, {group.pass_high:.0%}]"
    return f"{group.pass_share:.0%} {interval}, {group.passed}/{group.total}"


def _speedup(group: GroupSummary) -> str:
    text = speedup_text(group.geomean_speedup, group.geomean_low, group.geomean_high)
    return f"{text}, {group.averaged}/{group.total}" if group.averaged > 1 else ""


def _speedup_of_these(group: GroupSummary) -> str:
    text = speedup_text(group.geomean_speedup, group.these_low, group.these_high)
    return text if group.averaged > 1 else ""


def _speedup_in_common(group: GroupSummary) -> str:
    text = speedup_text(group.common_geomean, group.common_low, group.common_high)
    return f"{text}, {group.common_models}/{group.total}" if group.common_models > 1 else ""


def _break_even(group: GroupSummary) -> str:
    """``19,000 [6,100, never]; 40/71 pay, 5,500; 12 never``"""
    known = group.break_even
    if known.models < 2 or known.median is None:
        return ""
    interval = f" [{steps_text(known.low)}, {steps_text(known.high or 0.0)}]" if known.low is not None else ""
    of_paying = "" if known.median_of_paying is None else f", {steps_text(known.median_of_paying)}"
    counts = f"{known.pays}/{known.models} pay{of_paying}; {known.never} never"
    return f"{steps_text(known.median)}{interval}; {counts}"


def _mean(metric: Metric, group: GroupSummary) -> str:
    """A metric's mean over the models, with the number of models."""
    mean = group.means[metric.name]
    several = mean.value is not None and mean.n > 1
    return (
        f"{with_unit(mean.value or 0.0, metric.unit, metric.digits)}, {mean.n}/{group.total}"
        if several
        else ""
    )
