"""The table of averages: a row for each section and compiler."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from harness.declared import Metric
from harness.metrics import declared
from runner.analysis.comparison import GroupSummary, Summary
from runner.analysis.digits import MISSING, speedup_text, steps_text, with_unit
from runner.reports.parts.grid import Table, TextColumn, table_of
from runner.reports.parts.sections import Section, compiler_name, sections

TITLE = "Averages over models. Geometric mean speedup, other means are arithmetic"
Average = tuple[Section, GroupSummary]


def averages_note(summary: Summary) -> str:
    """What enters an average."""
    checked = any(group.checked for group in summary.groups)
    enter = "Only models that passed parity enter" if checked else "Parity was not checked; all models enter"
    return f"{enter} an average; the number after the slash counts all models. Averages include slowdowns."


def averages(summary: Summary) -> tuple[Average, ...]:
    """The rows of the table: the groups of several models.

    An average over one model would be the model's own number, with another interval.
    """
    return tuple((part, group) for part in sections(summary) for group in part.groups if group.total > 1)


def averages_tables(summary: Summary) -> tuple[Table, ...]:
    """One table, without columns that are empty; () if it has no numbers."""
    rows = averages(summary)
    names: list[TextColumn[Average]] = [TextColumn("compiler", lambda row: compiler_name(row[1].compiler))]
    if len({part.title for part, _ in rows}) > 1:
        alike = len({(part.mode, part.dtype, part.device) for part, _ in rows}) == 1
        names.insert(0, TextColumn("models", lambda row: row[0].suite if alike else row[0].title))
    numbers = tuple(_columns(summary))
    droppable = [column.header for column in reversed(numbers[1:])]
    table = table_of(TITLE, rows, (*names, *numbers), droppable).filled()
    return (table,) if len(table.header) > len(names) else ()


def mean_text(group: GroupSummary) -> str:
    """The geometric mean speedup; none of a single model."""
    if group.averaged < 2:
        return MISSING
    return speedup_text(group.geomean_speedup, group.geomean_low, group.geomean_high)


def _columns(summary: Summary) -> Iterator[TextColumn[Average]]:
    """The most important first."""
    yield TextColumn("speedup, models like these\n[95 % interval], n", _speedup)
    yield TextColumn("pass rate\n[95 % interval], n", _passrate)
    yield TextColumn("values judged to 1 %\nmean, n", _judged)
    for metric in declared().averages():
        heading = metric.average.heading if metric.average else ""
        yield TextColumn(f"{heading}\nmean, n", partial(_mean, metric))
    yield TextColumn("break-even steps, median of all\npay, median of these; never", _break_even)
    yield TextColumn("speedup, these models\n[95 % interval]", _speedup_of_these)
    if any(group.common_models != group.averaged for group in summary.groups if group.averaged):
        yield TextColumn("speedup, models that all compilers passed\n[95 % interval], n", _speedup_in_common)
    if any(group.system.models for group in summary.groups):
        yield TextColumn("speedup, malloc as the system has it\n[95 % interval], n", _speedup_of_system)
        yield TextColumn("the allocator's factor, these models\n[95 % interval]", _allocator)


def _speedup(row: Average) -> str:
    text = mean_text(row[1])
    return text if text == MISSING else f"{text}, {row[1].averaged}/{row[1].total}"


def _passrate(row: Average) -> str:
    group = row[1]
    if not group.checked or group.pass_low is None or group.pass_high is None:
        return MISSING
    interval = f"[{group.pass_low:.0%}, {group.pass_high:.0%}]"
    return f"{group.pass_share:.0%} {interval}, {group.passed}/{group.total}"


def _judged(row: Average) -> str:
    group = row[1]
    if group.judged_finely is None:
        return MISSING
    return f"{group.judged_finely:.1%}, {group.judged_models}/{group.total}"


def _speedup_of_these(row: Average) -> str:
    group = row[1]
    text = speedup_text(group.geomean_speedup, group.these_low, group.these_high)
    return text if group.averaged > 1 else MISSING


def _speedup_in_common(row: Average) -> str:
    group = row[1]
    text = speedup_text(group.common_geomean, group.common_low, group.common_high)
    return f"{text}, {group.common_models}/{group.total}" if group.common_models > 1 else MISSING


def _speedup_of_system(row: Average) -> str:
    mean = row[1].system
    return f"{speedup_text(mean.value, mean.low, mean.high)}, {mean.models}/{row[1].total}"


def _allocator(row: Average) -> str:
    mean = row[1].allocator
    return speedup_text(mean.value, mean.these_low, mean.these_high)


def _break_even(row: Average) -> str:
    """``19,000 [6,100, never]; 40/71 pay, 5,500; 12 never``"""
    known = row[1].break_even
    if known.models < 2 or known.median is None:
        return MISSING
    interval = f" [{steps_text(known.low)}, {steps_text(known.high or 0.0)}]" if known.low is not None else ""
    of_paying = "" if known.median_of_paying is None else f", {steps_text(known.median_of_paying)}"
    counts = f"{known.pays}/{known.models} pay{of_paying}; {known.never} never"
    return f"{steps_text(known.median)}{interval}; {counts}"


def _mean(metric: Metric, row: Average) -> str:
    """A metric's mean over the models, with the number of models."""
    mean = row[1].means[metric.name]
    if mean.value is None or mean.n < 2:
        return MISSING
    return f"{with_unit(mean.value, metric.unit, metric.digits)}, {mean.n}/{row[1].total}"
