"""The averages: a row for each section and compiler."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple

from harness.declared import Metric
from harness.metrics import declared
from runner.analysis.columns import JSON, Column, text_column, values
from runner.analysis.digits import MISSING, estimate_text, steps_text, with_unit
from runner.analysis.results import CONTROL, GroupSummary, Mean, Result, Summary
from runner.analysis.texts import compiler_name, failures_text, mean_parts, these_models_text
from runner.reports.parts.sections import Section, plot_name, sections
from runner.reports.parts.view import View

FAST = (1.0, 1.2, 1.5, 2.0)  # the values of p in words; the picture has all
TITLE = "Averages over models. Geometric mean speedup, other means are arithmetic"


class Average(NamedTuple):
    """The averages of one compiler, beside all results of its section."""

    part: Section
    group: GroupSummary

    @property
    def comparisons(self) -> tuple[Result, ...]:
        return tuple(c for c in self.part.comparisons if c.compiler == self.group.compiler)


def _every(summary: Summary) -> tuple[Average, ...]:
    return tuple(Average(part, group) for part in sections(summary) for group in part.groups)


def averages(summary: Summary) -> tuple[Average, ...]:
    """The rows of the table: the groups of several models. () if none has a number.

    An average over one model would be the model's own number, with another interval.
    """
    rows = tuple(row for row in _every(summary) if row.group.total > 1)
    return rows if any(row.group.checked or row.group.mean.models > 1 for row in rows) else ()


def averages_note(summary: Summary) -> str:
    """What enters an average."""
    checked = any(group.checked for group in summary.groups)
    enter = (
        "Only models that passed parity enter"
        if checked
        else "Parity was not checked; all models that ran enter"
    )
    return f"{enter} an average; the number after the slash counts all models. Averages include slowdowns."


def fast(summary: Summary) -> tuple[Average, ...]:
    """The candidates, without eager, of which it is told how many are right and so many times as fast."""
    rows = averages(summary)
    return tuple(r for r in rows if r.part.rounds and r.group.compiler.partition("@")[0] != CONTROL)


def fast_lines(summary: Summary) -> Iterator[str]:
    """``toys, training, float32, cpu, inductor, fast_p of 5 (right and ...): p = 1: 60%, 1.2: 40%``"""
    for part, group in fast(summary):
        how = "right" if group.checked else "run, parity not checked,"
        meaning = f"fast_p of {group.total} ({how} and at least p times as fast as eager)"
        shares = ", ".join(f"{p:g}: {group.fast(p) / group.total:.0%}" for p in FAST)
        yield f"{part.title}, {compiler_name(group.compiler)}, {meaning}: p = {shares}"


def fast_plot(part: Section) -> str:
    """The file of its picture."""
    return plot_name(part.suite, part.dtype, "_fast_p")


def _columns(summary: Summary) -> Iterator[Column[Average]]:
    """Those of the table, the most important first, then those that only programs read."""
    rows = averages(summary)
    if len({row.part.title for row in rows}) > 1:
        alike = len({(row.part.mode, row.part.dtype, row.part.device) for row in rows}) == 1
        yield text_column("models", lambda row: row.part.suite if alike else row.part.title)
    yield Column("compiler", "text", "group.compiler", "compiler", lambda r: compiler_name(r.group.compiler))
    for drop, (header, text) in enumerate(_texts(summary)):
        yield text_column(header, text, drop=drop)
    yield from values("text", "suite", "mode", "device", "dtype", of="group.place.")
    yield from values("", "total", "passed", of="group.")
    yield from values("share", "pass_share", "pass_low", "pass_high", of="group.")
    yield Column("averaged", "", "group.mean.models")
    yield Column("geomean_speedup", "ratio", "group.mean.value")
    yield from (Column(f"geomean_{end}", "ratio", f"group.mean.over.{end}") for end in ("low", "high"))
    yield from (Column(f"these_{end}", "ratio", f"group.mean.these.{end}") for end in ("low", "high"))
    for metric in declared().averages():
        assert metric.average is not None
        yield Column(f"mean_{metric.name}", metric.unit, f"group.means.{metric.name}.value")
        yield Column(f"{metric.average.key}_n", "", f"group.means.{metric.name}.n")
    yield Column("judged_finely", "share", "group.means.judged_finely.value")
    yield Column("judged_models", "", "group.means.judged_finely.n")
    yield Column("common_models", "", "group.common.models")
    yield Column("common_geomean", "ratio", "group.common.value")
    yield from (Column(f"common_{end}", "ratio", f"group.common.over.{end}") for end in ("low", "high"))
    yield from values(JSON, "verdicts", "break_even", of="group.")
    yield Column("system", JSON, lambda row: mean_parts(row.group.system))
    yield Column("allocator", JSON, lambda row: mean_parts(row.group.allocator))
    yield from values("truth", "checked", of="group.")


def _texts(summary: Summary) -> Iterator[tuple[str, Callable[[Average], str]]]:
    yield "speedup, models like these\n[95 % interval], n", lambda row: _of_models(row.group.mean, row)
    yield "pass rate\n[95 % interval], n", _passrate
    yield "values judged to 1 %\nmean, n", _judged
    for metric in declared().averages():
        heading = metric.average.heading if metric.average else ""
        yield f"{heading}\nmean, n", partial(_mean_text, metric)
    yield "break-even steps, median of all\npay, median of these; never", _break_even
    yield "speedup, these models\n[95 % interval]", lambda row: these_models_text(row.group.mean)
    if any(group.common.models != group.mean.models for group in summary.groups if group.mean.models):
        header = "speedup, models that all compilers passed\n[95 % interval], n"
        yield header, lambda row: _of_models(row.group.common, row)
    if any(group.system.models for group in summary.groups):
        header = "speedup, malloc as the system has it\n[95 % interval], n"
        yield header, lambda row: _of_models(row.group.system, row, least=0)
        header = "the allocator's factor, these models\n[95 % interval]"
        yield header, lambda row: these_models_text(row.group.allocator, least=0)


def _of_models(mean: Mean, row: Average, least: int = 2) -> str:
    """With the number of models."""
    if mean.models < least:
        return MISSING
    return f"{estimate_text(mean.over)}, {mean.models}/{row.group.total}"


def _passrate(row: Average) -> str:
    group = row.group
    if not group.checked:
        return MISSING
    interval = f"[{group.pass_low:.0%}, {group.pass_high:.0%}]"
    why = failures_text(row.comparisons)
    return f"{group.pass_share:.0%} {interval}, {group.passed}/{group.total}{why}"


def _judged(row: Average) -> str:
    mean = row.group.means["judged_finely"]
    return MISSING if mean.value is None else f"{mean.value:.1%}, {mean.n}/{row.group.total}"


def _break_even(row: Average) -> str:
    """``19,000 [6,100, never]; 40/71 pay, 5,500; 12 never``, or ``open; 0/39 pay; 5 never``"""
    known = row.group.break_even
    if known.models < 2 or known.median is None:
        return MISSING
    interval = f" [{steps_text(known.low)}, {steps_text(known.high or 0.0)}]" if known.low is not None else ""
    of_paying = "" if known.median_of_paying is None else f", {steps_text(known.median_of_paying)}"
    counts = f"{known.pays}/{known.models} pay{of_paying}; {known.never} never"
    return f"open; {counts}" if known.open else f"{steps_text(known.median)}{interval}; {counts}"


def _mean_text(metric: Metric, row: Average) -> str:
    """With the number of models."""
    mean = row.group.means[metric.name]
    if mean.value is None or mean.n < 2:
        return MISSING
    return f"{with_unit(mean.value, metric.unit, metric.digits)}, {mean.n}/{row.group.total}"


AVERAGES: View[Summary, Average] = View(
    name="groups",
    rows=_every,
    columns=_columns,
    parts=lambda summary: [(TITLE, averages(summary))],
    notes=lambda summary, _: [averages_note(summary)],
    pictures=lambda summary, _: [fast_plot(row.part) for row in fast(summary)],
)
