"""``{suite}_{dtype}.png``, ``.svg``: every speedup with its 95 % interval, a panel for each mode and device.

A forest plot: a row for each model, in plan order, with a marker for each compiler and its number or status
at the right. The last row is the geometric mean over the models that passed, if there are several.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from typing import TYPE_CHECKING, Any, NamedTuple

from runner.analysis.digits import MISSING, estimate_text, share_text
from runner.analysis.results import GroupSummary, Result, Summary
from runner.analysis.texts import batch_cell, compiler_name, mean_text
from runner.analysis.verdicts import Verdict
from runner.names import case_name
from runner.reports.parts import pictures
from runner.reports.parts.sections import Section, compilers, plot_name, sections, top_models

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FORMATS = ("png", "svg")
WIDTH_IN, LINE_IN = 11.0, 0.17  # of the figure; height of one compiler's line
MOST_MODELS, SHOWN_MODELS = 100, 50  # of a larger panel: the models with speedups furthest from 1
MEAN = "geometric mean"
BEYOND_POINTS = 1.3  # intervals extend the axis beyond the outermost points at most by this factor


class Mark(NamedTuple):
    """One compiler's line in a row: a point with its interval, or words only."""

    compiler: str
    words: str
    value: float | None = None
    low: float | None = None
    high: float | None = None
    solid: bool = True  # the verdict is faster or slower


Lines = Sequence[tuple[str, Sequence[Mark]]]
"""The label of a model, and a mark for each compiler."""


def render(summary: Summary) -> Mapping[str, bytes]:
    panels = [(plot_name(s.suite, s.dtype), s) for s in sections(summary) if s.rounds]
    return pictures.pictures(pictures.by_name(panels, lambda members: draw(members, compilers(summary))))


@pictures.plain_style()
def draw(panels: Sequence[Section], order: Sequence[str]) -> Figure:
    """The figure of one suite in one dtype. ``order``: all compilers of the run, which fixes their colors."""
    kept = [top_models(p.comparisons, most=MOST_MODELS, otherwise=SHOWN_MODELS) for p in panels]
    shown = [(replace(p, comparisons=tuple(c)), text) for p, (c, text) in zip(panels, kept, strict=True)]
    rows = [tuple(_rows(panel)) for panel, _ in shown]
    heights = [len(of_panel) * _lines(of_panel) * LINE_IN + 1.0 for of_panel in rows]
    figure = pictures.new_figure(WIDTH_IN, sum(heights) + 0.3)
    axes = figure.subplots(len(panels), 1, squeeze=False, height_ratios=heights)[:, 0]
    limits = _limits([mark for of_panel in rows for _, marks in of_panel for mark in marks])
    for ax, (panel, left_out), of_panel in zip(axes, shown, rows, strict=True):
        ax.set(xscale="log", xlim=limits)
        _draw_panel(ax, panel, of_panel, pictures.styles(order))
        pictures.heading(ax, panel.title, panel.environment, f"{panel.rounds} rounds", left_out)
    hollow = "hollow: same, inconclusive or unsteady"
    axes[-1].plot([], [], "o", ms=4.5, mfc="white", color=pictures.GREY, label=hollow)
    pictures.legend(figure, axes, loc="outside upper left", ncols=6)
    return figure


def _rows(panel: Section) -> Iterator[tuple[str, tuple[Mark, ...]]]:
    for _, group in groupby(panel.comparisons, key=lambda c: c.record.job.key):
        members = tuple(group)
        batch = next((f"\nbatch {text}" for text in map(batch_cell, members) if text != MISSING), "")
        yield pictures.shorten(case_name(members[0].record.job.case), 48) + batch, tuple(map(_mark, members))
    if means := tuple(_mean_mark(group) for group in panel.groups if group.mean.models > 1):
        yield f"{MEAN}\nof those that passed", means


def _mark(c: Result) -> Mark:
    status = c.record.status
    if not status.passed or c.estimate is None:
        words = "not timed" if status.passed else status.value
        return Mark(c.compiler, f"{compiler_name(c.compiler)}: {words}")
    solid = c.verdict in (Verdict.FASTER, Verdict.SLOWER)
    return Mark(c.compiler, estimate_text(c.estimate), c.speedup, c.estimate.low, c.estimate.high, solid)


def _mean_mark(group: GroupSummary) -> Mark:
    mean = group.mean
    words = f"{mean_text(mean)}, {mean.models}/{group.total}"
    ends = (mean.over.low, mean.over.high) if mean.over else (None, None)
    return Mark(group.compiler, words, mean.value, *ends)


def _lines(rows: Lines) -> float:
    """The height of a row. A label has two lines."""
    return max(2, *(len(marks) for _, marks in rows)) + 0.9


def _draw_panel(ax: Axes, panel: Section, rows: Lines, of_compiler: Mapping[str, Mapping[str, Any]]) -> None:
    threshold = panel.comparisons[0].record.job.protocol.noise_threshold
    ax.axvspan(1 / (1 + threshold), 1 + threshold, color=pictures.PALE, zorder=0, linewidth=0)
    ax.axvline(1.0, color="black", linewidth=0.8, zorder=1)
    for place, (label, marks) in enumerate(rows):
        color = "black" if label.startswith(MEAN) else pictures.PALE
        ax.axhline(place - 0.5, color=color, linewidth=0.8, zorder=0)
        for line, mark in enumerate(marks):
            y, style = place + (line - (len(marks) - 1) / 2) / _lines(rows), of_compiler[mark.compiler]
            ax.text(1.01, y, mark.words, transform=ax.get_yaxis_transform(), va="center", fontsize=7)
            if mark.low is not None and mark.high is not None:
                ax.hlines(y, mark.low, mark.high, color=style["color"], linewidth=1.3)
            if mark.value is not None:
                face = style["color"] if mark.solid else "white"
                ax.plot(mark.value, y, **style, ms=4.5, mfc=face, zorder=3)
    for compiler in compilers(panel):
        ax.plot([], [], **of_compiler[compiler], ms=4.5, linewidth=1.3, label=compiler_name(compiler))
    ax.set_yticks(range(len(rows)), [label for label, _ in rows])
    ax.set_ylim(len(rows) - 0.5, -0.5)  # the first model on top
    ax.tick_params(axis="y", length=0)
    ax.grid(visible=False, axis="y")
    pictures.log_ticks(ax.xaxis, "x", most=10)
    shaded = f"shaded: noise threshold \N{PLUS-MINUS SIGN}{share_text(threshold)}"
    ax.set_xlabel(f"speedup over eager with its 95 % interval (log scale); {shaded}")


def _limits(marks: Sequence[Mark]) -> tuple[float, float]:
    """The ends of the axis: all points, at least 0.9x to 1.1x, and intervals up to ``BEYOND_POINTS``."""
    values = [0.9, 1.1, *(mark.value for mark in marks if mark.value)]
    ends = [*values, *(end for mark in marks for end in (mark.low, mark.high) if end)]
    low, high = max(min(ends), min(values) / BEYOND_POINTS), min(max(ends), max(values) * BEYOND_POINTS)
    return low / 1.02, high * 1.02
