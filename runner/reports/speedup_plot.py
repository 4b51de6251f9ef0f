"""``{suite}_{dtype}.png``, ``.svg``: every speedup with its 95 % interval, a panel for each mode and device.

A forest plot: one row for each model, in plan order, with a marker for each compiler and its
number at the right. The status replaces the number if there is no valid speedup. The last row
is the geometric mean over the models that passed, if there are several.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate, groupby, pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

from runner.analysis.comparison import Comparison, GroupSummary, Summary
from runner.analysis.digits import MISSING, estimate_text, share_text
from runner.analysis.estimate import Verdict
from runner.analysis.texts import batch_cell, compiler_name
from runner.labels import case_name
from runner.reports.parts.averages import mean_text
from runner.reports.parts.axes import (
    GREY,
    legend,
    light_grid,
    new_figure,
    note,
    ratio_ticks,
    shorten,
    shortened,
    styles,
)
from runner.reports.parts.pictures import by_name, plain_style
from runner.reports.parts.sections import (
    Section,
    compilers,
    environment_line,
    plot_name,
    sections,
    top_models,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FORMATS = ("png", "svg")
WIDTH_IN = 11.0
LINE_IN = 0.17  # height of one compiler's line
PAD_LINES = 0.9  # between two models, in lines
MEAN = "geometric mean"
MOST_TICKS = 10
BEYOND_POINTS = 1.3  # intervals extend the axis beyond the outermost points at most by this factor
FACTS_WIDTH = 170  # characters
TITLE_WIDTH = 90
LABEL_WIDTH = 48
INK = "#333333"
MOST_MODELS = 100  # in a panel
HOLLOW = (
    "hollow: a model that is same, inconclusive or unsteady",
    {"linewidth": 0, "ms": 4.5, "marker": "o", "color": GREY, "mfc": "white"},
)
SHOWN_MODELS = 50  # of a larger panel: the models with speedups furthest from 1


class Mark(NamedTuple):
    """One compiler's line in a row: a point with its interval, or words only."""

    compiler: str
    words: str
    value: float | None = None
    low: float | None = None
    high: float | None = None
    solid: bool = False  # the verdict is faster or slower


MarkRow = tuple[str, tuple[Mark, ...]]
"""The label, and a mark for each compiler."""


def render(summary: Summary) -> Mapping[str, bytes]:
    order = compilers(summary)
    panels = [(plot_name(s.suite, s.dtype), s) for s in sections(summary) if s.rounds]
    return by_name(panels, lambda members: draw(members, order))


def draw(panels: Sequence[Section], order: Sequence[str]) -> Figure:
    """The figure of one suite in one dtype. ``order``: all compilers of the run, which fixes their colors."""
    shown = [top_models(panel, most=MOST_MODELS, otherwise=SHOWN_MODELS) for panel in panels]
    rows = [tuple(_rows(panel)) for panel, _ in shown]
    heights = [sum(map(_height, panel_rows)) * LINE_IN + 1.3 for panel_rows in rows]
    with plain_style():
        figure = new_figure(WIDTH_IN, sum(heights))
        axes = figure.subplots(len(panels), 1, squeeze=False, height_ratios=heights)[:, 0]
        limits = _limits([row for panel_rows in rows for row in panel_rows])
        for ax, (panel, left_out), panel_rows in zip(axes, shown, rows, strict=True):
            ax.set(xscale="log", xlim=limits)
            _draw_panel(ax, panel, panel_rows, styles(order))
            _draw_title(ax, panel, left_out)
    return figure


def _rows(panel: Section) -> Iterator[MarkRow]:
    short = shortened((case_name(c.record.job.case) for c in panel.comparisons), LABEL_WIDTH)
    for _, group in groupby(panel.comparisons, key=lambda c: c.record.job.key):
        members = tuple(group)
        batches = [f"batch {text}" for text in map(batch_cell, members) if text != MISSING]
        label = "\n".join((short[case_name(members[0].record.job.case)], *batches[:1]))
        yield label, tuple(_mark(c) for c in members)
    means = tuple(_mean_mark(group) for group in panel.groups if group.mean.models > 1)
    if means:
        yield f"{MEAN}\nof those that passed", means


def _mark(c: Comparison) -> Mark:
    status = c.record.status
    if not status.passed or c.speedup is None:
        words = "not timed" if status.passed else status.value
        return Mark(c.compiler, f"{compiler_name(c.compiler)}: {words}")
    solid = c.verdict in (Verdict.FASTER, Verdict.SLOWER)
    return Mark(c.compiler, estimate_text(c.estimate), c.speedup, c.ci_low, c.ci_high, solid)


def _mean_mark(group: GroupSummary) -> Mark:
    mean = group.mean
    words = f"{mean_text(mean)}, {mean.models}/{group.total}"
    return Mark(group.compiler, words, mean.value, mean.low, mean.high, solid=True)


def _height(row: MarkRow) -> float:
    """In lines. A label has two."""
    return max(2.0, len(row[1])) + PAD_LINES


def _draw_panel(
    ax: Axes, panel: Section, rows: Sequence[MarkRow], of_compiler: Mapping[str, Mapping[str, str]]
) -> None:
    threshold = panel.comparisons[0].record.job.protocol.noise_threshold
    ax.axvspan(1 / (1 + threshold), 1 + threshold, color="#DDDDDD", zorder=0, linewidth=0)
    ax.axvline(1.0, color="black", linewidth=0.8, zorder=1)
    tops = [0.0, *accumulate(map(_height, rows))]
    ax.set_ylim(tops[-1], 0)  # the first model on top
    centers = [(top + end) / 2 for top, end in pairwise(tops)]
    for (label, marks), top, center in zip(rows, tops[:-1], centers, strict=True):
        is_mean = label.startswith(MEAN)
        style: dict[str, Any] = {"color": "black", "linewidth": 0.8} if is_mean else {"color": "#CCCCCC"}
        if top:
            ax.axhline(top, zorder=0, **{"linewidth": 0.5, **style})
        for place, mark in enumerate(marks):
            y = center + place - (len(marks) - 1) / 2
            _draw_mark(ax, mark, y, of_compiler[mark.compiler], 6.0 if is_mean else 4.5)
    ax.set_yticks(centers, [label for label, _ in rows], parse_math=False)
    ax.tick_params(axis="y", length=0)
    ratio_ticks(ax.xaxis, ax.get_xlim(), MOST_TICKS)
    light_grid(ax, "x", hidden=("top", "right", "left"))
    ax.set_xlabel(
        f"speedup over eager (log scale); shaded: noise threshold \N{PLUS-MINUS SIGN}{share_text(threshold)}"
    )
    names = [(compiler_name(c), {"linewidth": 1.3, "ms": 4.5, **of_compiler[c]}) for c in compilers(panel)]
    legend(ax, [*names, HOLLOW])


def _draw_mark(ax: Axes, mark: Mark, y: float, style: Mapping[str, str], size: float) -> None:
    color = style["color"]
    if mark.value is not None:
        if mark.low is not None and mark.high is not None:
            ax.plot([mark.low, mark.high], [y, y], color=color, linewidth=1.3, zorder=2)
        face = color if mark.solid else "white"
        ax.plot(mark.value, y, style["marker"], color=color, mfc=face, ms=size, zorder=3)
    font: dict[str, Any] = {"fontstyle": "italic"} if mark.value is None else {}
    at, coordinates = (1.0, y), ("axes fraction", "data")
    note(ax, mark.words, at, (6, 0), coordinates, va="center", color=INK, annotation_clip=False, **font)


def _limits(rows: Sequence[MarkRow]) -> tuple[float, float]:
    """The ends of the axis: all points, at least 0.9x to 1.1x, and intervals up to ``BEYOND_POINTS``."""
    marks = [mark for _, row in rows for mark in row]
    values = [mark.value for mark in marks if mark.value is not None]
    lowest, highest = min([0.9, *values]), max([1.1, *values])
    low = max(min([lowest, *(m.low for m in marks if m.low)]), lowest / BEYOND_POINTS)
    high = min(max([highest, *(m.high for m in marks if m.high)]), highest * BEYOND_POINTS)
    margin = math.exp(0.03 * math.log(high / low))
    return low / margin, high * margin


def _draw_title(ax: Axes, panel: Section, left_out: str) -> None:
    """Above the legend: the title, and the conditions of the measurement in small print."""
    parts = (f"{panel.rounds} rounds", environment_line(panel.environment), left_out)
    facts = textwrap.wrap("; ".join(part for part in parts if part), FACTS_WIDTH, max_lines=4)
    height = 9 * len(facts)
    title = shorten(panel.title, TITLE_WIDTH)
    ax.set_title(title, loc="left", fontsize=11, fontweight="bold", pad=22 + height, parse_math=False)
    note(ax, "\n".join(facts), (0.0, 1.0), (0, 17), va="bottom", color=GREY)
    note(ax, "speedup [95 % interval]", (1.0, 1.0), (6, 3), va="bottom", color=GREY)
