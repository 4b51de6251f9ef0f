"""The table of averages: a row for each section and compiler."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from harness.declared import Metric
from harness.metrics import declared
from harness.schema import Status
from runner.analysis.digits import MISSING, estimate_text, steps_text, with_unit
from runner.analysis.estimate import Mean
from runner.analysis.results import GroupSummary, Summary
from runner.analysis.texts import compiler_name
from runner.reports.parts.grid import Table, TextColumn, table_of
from runner.reports.parts.sections import Section, sections

TITLE = "Averages over models. Geometric mean speedup, other means are arithmetic"
Average = tuple[Section, GroupSummary]


def averages_note(summary: Summary) -> str:
    """What enters an average."""
    checked = any(group.checked for group in summary.groups)
    enter = (
        "Only models that passed parity enter"
        if checked
        else "Parity was not checked; all models that ran enter"
    )
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


def mean_text(mean: Mean) -> str:
    """The geometric mean speedup; none of a single model."""
    return estimate_text(mean.over) if mean.models > 1 else MISSING


def _of_models(mean: Mean, row: Average, least: int = 2) -> str:
    """With the number of models."""
    if mean.models < least:
        return MISSING
    return f"{estimate_text(mean.over)}, {mean.models}/{row[1].total}"


def these_models_text(mean: Mean, least: int = 2) -> str:
    """With the interval for these models."""
    return estimate_text(mean.these) if mean.models >= least else MISSING


def _columns(summary: Summary) -> Iterator[TextColumn[Average]]:
    """The most important first."""
    yield TextColumn(
        "speedup, models like these\n[95 % interval], n", lambda row: _of_models(row[1].mean, row)
    )
    yield TextColumn("pass rate\n[95 % interval], n", _passrate)
    yield TextColumn("values judged to 1 %\nmean, n", _judged)
    for metric in declared().averages():
        heading = metric.average.heading if metric.average else ""
        yield TextColumn(f"{heading}\nmean, n", partial(_mean, metric))
    yield TextColumn("break-even steps, median of all\npay, median of these; never", _break_even)
    yield TextColumn("speedup, these models\n[95 % interval]", lambda row: these_models_text(row[1].mean))
    if any(group.common.models != group.mean.models for group in summary.groups if group.mean.models):
        header = "speedup, models that all compilers passed\n[95 % interval], n"
        yield TextColumn(header, lambda row: _of_models(row[1].common, row))
    if any(group.system.models for group in summary.groups):
        header = "speedup, malloc as the system has it\n[95 % interval], n"
        yield TextColumn(header, lambda row: _of_models(row[1].system, row, least=0))
        header = "the allocator's factor, these models\n[95 % interval]"
        yield TextColumn(header, lambda row: these_models_text(row[1].allocator, least=0))


def _passrate(row: Average) -> str:
    group = row[1]
    if not group.checked:
        return MISSING
    interval = f"[{group.pass_low:.0%}, {group.pass_high:.0%}]"
    own = (c.record.status for c in row[0].comparisons if c.compiler == group.compiler)
    wrong, lost = sum(status is Status.FAIL_ACCURACY for status in own), group.total - group.passed
    failures = f" (wrong results {wrong}, others {lost - wrong})" if lost else ""
    return f"{group.pass_share:.0%} {interval}, {group.passed}/{group.total}{failures}"


def _judged(row: Average) -> str:
    mean = row[1].judged
    return MISSING if mean.value is None else f"{mean.value:.1%}, {mean.n}/{row[1].total}"


def _break_even(row: Average) -> str:
    """``19,000 [6,100, never]; 40/71 pay, 5,500; 12 never``, or ``open; 0/39 pay; 5 never``"""
    known = row[1].break_even
    if known.models < 2 or known.median is None:
        return MISSING
    interval = f" [{steps_text(known.low)}, {steps_text(known.high or 0.0)}]" if known.low is not None else ""
    of_paying = "" if known.median_of_paying is None else f", {steps_text(known.median_of_paying)}"
    counts = f"{known.pays}/{known.models} pay{of_paying}; {known.never} never"
    return f"open; {counts}" if known.open else f"{steps_text(known.median)}{interval}; {counts}"


def _mean(metric: Metric, row: Average) -> str:
    """A metric's mean over the models, with the number of models."""
    mean = row[1].means[metric.name]
    if mean.value is None or mean.n < 2:
        return MISSING
    return f"{with_unit(mean.value, metric.unit, metric.digits)}, {mean.n}/{row[1].total}"
