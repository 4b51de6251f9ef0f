"""The table of the curves of ``--sweep``, as rows of text, for all reports."""

from __future__ import annotations

import math
from collections.abc import Mapping

from runner.analysis.digits import estimate_text
from runner.analysis.estimate import Verdict
from runner.analysis.results import Crossover, Curve, Summary
from runner.analysis.texts import compiler_name
from runner.labels import case_name
from runner.reports.parts.grid import Table, TextColumn, table_of
from runner.reports.parts.sections import conditions, plot_name

TITLE = "Curves: where the speedup crosses 1.00x [95 % interval]"


def curve_tables(summary: Summary) -> tuple[Table, ...]:
    """() without --sweep."""
    if not summary.curves:
        return ()
    labels = summary.labels
    cells: tuple[TextColumn[Curve], ...] = (
        TextColumn("model", lambda curve: case_name(curve.case), once=True),
        TextColumn("conditions", lambda curve: _conditions(curve, labels), once=True),
        TextColumn("candidate", lambda curve: compiler_name(curve.comparisons[0].compiler)),
        TextColumn("over", range_text),
        TextColumn("against eager", crossing_text),
        TextColumn("speedup\nat the first point", lambda curve: _speedup(curve, 0)),
        TextColumn("speedup\nat the last point", lambda curve: _speedup(curve, -1)),
        TextColumn("points", lambda curve: f"{len(curve.points)}/{len(curve.comparisons)}", is_number=True),
    )
    droppable = ("conditions", "points", "speedup\nat the first point", "speedup\nat the last point", "over")
    return (table_of(TITLE, summary.curves, cells, droppable, lambda curve: curve.family),)


def _conditions(curve: Curve, labels: Mapping[str, str]) -> str:
    first = curve.comparisons[0]
    job = first.record.job
    return conditions(labels[job.case.suite], job.case.mode.value, job.dtype, first.device)


def curve_plot(summary: Summary, curve: Curve) -> str:
    """The file of its picture."""
    job = curve.comparisons[0].record.job
    return plot_name(summary.labels[job.case.suite], job.dtype, "_curves")


def range_text(curve: Curve) -> str:
    """``batch 1 to 64``"""
    first, last = (curve.comparisons[i].record.job.case.at[curve.axis] for i in (0, -1))
    return f"{curve.axis} {first:,} to {last:,}"


def crossing_text(curve: Curve) -> str:
    """``faster from batch 6 [4, 8]``; without a crossover, at how many points it is faster or slower."""
    if curve.crossovers:
        return "; ".join(_crossover_text(curve, crossover) for crossover in curve.crossovers)
    verdicts, n = [comparison.verdict for comparison in curve.points.values()], len(curve.points)
    faster, slower = verdicts.count(Verdict.FASTER), verdicts.count(Verdict.SLOWER)
    if n > 1 and n in (faster, slower):
        return f"{'faster' if faster else 'slower'} at all {n} points"
    return f"faster at {faster}, slower at {slower} of {n} points"


def _crossover_text(curve: Curve, crossover: Crossover) -> str:
    low = f"under {min(curve.points):,}" if crossover.low is None else _value(crossover.low)
    high = f"over {max(curve.points):,}" if crossover.high is None else _value(crossover.high)
    word = "faster" if crossover.faster else "slower"
    return f"{word} from {curve.axis} {_value(crossover.at)} [{low}, {high}]"


def _value(at: float) -> str:
    """The first whole number that is not below: a batch has no parts."""
    return f"{math.ceil(round(at, 6)):,}"


def _speedup(curve: Curve, place: int) -> str:
    point = curve.points.get(curve.comparisons[place].record.job.case.at[curve.axis])  # None if it failed
    return estimate_text(point.estimate if point else None)
