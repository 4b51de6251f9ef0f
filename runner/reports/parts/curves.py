"""The curves of ``--sweep``: where the speedup of a candidate crosses 1."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import partial

from runner.analysis.columns import JSON, Column, text_column
from runner.analysis.digits import estimate_text
from runner.analysis.results import Crossover, Curve, Summary
from runner.analysis.texts import compiler_name
from runner.analysis.verdicts import Verdict
from runner.names import case_name
from runner.reports.parts.sections import conditions, plot_name
from runner.reports.parts.view import View


def _columns(summary: Summary) -> Iterator[Column[Curve]]:
    labels = summary.labels

    def where(curve: Curve) -> str:
        first = curve.comparisons[0]
        job = first.record.job
        return conditions(labels[job.case.suite], job.case.mode.value, job.dtype, first.device)

    yield Column("axis", "text", "axis")
    yield text_column("model", lambda curve: case_name(curve.case), once=True)
    yield text_column("conditions", where, once=True, drop=5)
    yield Column("candidate", "text", lambda curve: curve.comparisons[0].record.candidate)
    yield text_column("candidate", lambda curve: compiler_name(curve.comparisons[0].compiler))
    yield Column("jobs", JSON, lambda curve: [comparison.record.job.key for comparison in curve.comparisons])
    yield text_column("over", range_text, drop=1)
    yield Column("crossovers", JSON, "crossovers", "against eager", crossing_text)
    for drop, place, word in ((3, 0, "first"), (2, -1, "last")):
        yield text_column(f"speedup\nat the {word} point", partial(_speedup, place), drop)
    yield Column("points", JSON, lambda curve: [*curve.points])
    yield text_column("points", lambda curve: f"{len(curve.points)}/{len(curve.comparisons)}", drop=4)


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


def _speedup(place: int, curve: Curve) -> str:
    point = curve.points.get(curve.comparisons[place].record.job.case.at[curve.axis])  # None if it failed
    return estimate_text(point.estimate if point else None)


CURVES: View[Summary, Curve] = View(
    name="curves",
    title="Curves: where the speedup crosses 1.00x [95 % interval]",
    rows=lambda summary: summary.curves,
    columns=_columns,
    group=lambda curve: curve.family,
    pictures=lambda summary, curves: [curve_plot(summary, curve) for curve in curves],
)
