"""``{suite}_{dtype}.png``, ``.svg``: every speedup with its 95 % interval, a panel for each mode and device.

A forest plot: one row for each model, in plan order, with a marker for each compiler and its
number at the right. The status replaces the number if there is no valid speedup. The last row
is the geometric mean over the models that passed, if there are several.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING

from runner.analysis.comparison import Comparison, GroupSummary, Summary
from runner.analysis.digits import MISSING, share_text, speedup_text
from runner.analysis.estimate import Verdict
from runner.labels import case_name
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
    compiler_name,
    compilers,
    environment_line,
    plot_name,
    sections,
)
from runner.reports.parts.table import batch_cell
from runner.reports.parts.top_models import top_models

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
MOST_MODELS = 100  # in a panel
HOLLOW = (
    "hollow: same, inconclusive or unsteady",
    {"linewidth": 0, "ms": 4.5, "marker": "o", "color": GREY, "mfc": "white"},
)
SHOWN_MODELS = 50  # of a larger panel: the models with speedups furthest from 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """One compiler's line in a row: a point with its interval, or words only."""

    compiler: str
    words: str
    value: float | None = None
    low: float | None = None
    high: float | None = None
    solid: bool = False  # the verdict is faster or slower


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    label: str
    marks: tuple[Mark, ...]


def render(summary: Summary) -> Mapping[str, bytes]:
    order = compilers(summary)
    panels = [(plot_name(s.suite, s.dtype), s) for s in sections(summary) if s.rounds]
    return by_name(panels, lambda members: draw(members, order))


def draw(panels: Sequence[Section], order: Sequence[str]) -> Figure:
    """The figure of one suite in one dtype. ``order``: all compilers of the run, which fixes their colors."""
    shown = [top_models(panel, most=MOST_MODELS, otherwise=SHOWN_MODELS) for panel in panels]
    rows = [tuple(_rows(panel)) for panel, _ in shown]
    heights = [_lines(panel_rows) * LINE_IN + 1.3 for panel_rows in rows]
    with plain_style():
        figure = new_figure(WIDTH_IN, sum(heights))
        axes = figure.subplots(len(panels), 1, squeeze=False, height_ratios=heights)[:, 0]
        limits = _limits([row for panel_rows in rows for row in panel_rows])
        for ax, (panel, left_out), panel_rows in zip(axes, shown, rows, strict=True):
            ax.set_xscale("log")
            ax.set_xlim(limits)
            _draw_panel(ax, panel, panel_rows, styles(order))
            _draw_title(ax, panel, left_out)
    return figure


def _rows(panel: Section) -> Iterator[Row]:
    short = shortened((case_name(c.record.job.case) for c in panel.comparisons), LABEL_WIDTH)
    for _, group in groupby(panel.comparisons, key=lambda c: c.record.job.key):
        members = tuple(group)
        batches = [f"batch {text}" for text in map(batch_cell, members) if text != MISSING]
        label = "\n".join((short[case_name(members[0].record.job.case)], *batches[:1]))
        yield Row(label=label, marks=tuple(_mark(c) for c in members))
    means = tuple(_mean_mark(group) for group in panel.groups if group.averaged > 1)
    if means:
        yield Row(label=f"{MEAN}\nof those that passed", marks=means)


def _mark(comparison: Comparison) -> Mark:
    record = comparison.record
    if not record.status.passed or comparison.speedup is None:
        words = record.status.value if not record.status.passed else "not timed"
        return Mark(compiler=comparison.compiler, words=words)
    return Mark(
        compiler=comparison.compiler,
        words=speedup_text(comparison.speedup, comparison.ci_low, comparison.ci_high),
        value=comparison.speedup,
        low=comparison.ci_low,
        high=comparison.ci_high,
        solid=comparison.verdict in (Verdict.FASTER, Verdict.SLOWER),
    )


def _mean_mark(group: GroupSummary) -> Mark:
    text = speedup_text(group.geomean_speedup, group.geomean_low, group.geomean_high)
    return Mark(
        compiler=group.compiler,
        words=f"{text}, {group.averaged}/{group.total}",
        value=group.geomean_speedup,
        low=group.geomean_low,
        high=group.geomean_high,
        solid=True,
    )


Style = Mapping[str, str]


def _lines(rows: Sequence[Row]) -> float:
    return sum(_row_lines(row) for row in rows)


def _row_lines(row: Row) -> float:
    return max(2.0, len(row.marks)) + PAD_LINES  # a label has two lines


def _draw_panel(ax: Axes, panel: Section, rows: Sequence[Row], of_compiler: Mapping[str, Style]) -> None:
    total = _lines(rows)
    ax.set_ylim(total, 0)  # the first model on top
    threshold = panel.comparisons[0].record.job.protocol.noise_threshold
    ax.axvspan(1 / (1 + threshold), 1 + threshold, color="#DDDDDD", zorder=0, linewidth=0)
    ax.axvline(1.0, color="black", linewidth=0.8, zorder=1)
    top = 0.0
    centers = []
    for place, row in enumerate(rows):
        height = _row_lines(row)
        if place > 0:
            is_mean = row.label.startswith(MEAN)
            ax.axhline(
                top, color="black" if is_mean else "#CCCCCC", linewidth=0.8 if is_mean else 0.5, zorder=0
            )
        _draw_row(ax, row, top + height / 2, of_compiler)
        centers.append(top + height / 2)
        top += height
    ax.set_yticks(centers, [row.label for row in rows], parse_math=False)
    ax.tick_params(axis="y", length=0)
    ratio_ticks(ax.xaxis, ax.get_xlim(), MOST_TICKS)
    light_grid(ax, "x", hidden=("top", "right", "left"))
    ax.set_xlabel(
        f"speedup over eager (log scale); shaded: noise threshold \N{PLUS-MINUS SIGN}{share_text(threshold)}"
    )
    names = [(compiler_name(c), {"linewidth": 1.3, "ms": 4.5, **of_compiler[c]}) for c in panel.compilers]
    legend(ax, [*names, HOLLOW])


def _draw_row(ax: Axes, row: Row, center: float, of_compiler: Mapping[str, Style]) -> None:
    for place, mark in enumerate(row.marks):
        y = center + place - (len(row.marks) - 1) / 2
        style = of_compiler[mark.compiler]
        if mark.value is not None:
            face = style["color"] if mark.solid else "white"
            if mark.low is not None and mark.high is not None:
                ax.plot([mark.low, mark.high], [y, y], color=style["color"], linewidth=1.3, zorder=2)
            size = 6.0 if row.label.startswith(MEAN) else 4.5
            ax.plot(mark.value, y, style["marker"], color=style["color"], mfc=face, ms=size, zorder=3)
        failed = mark.value is None
        note(
            ax,
            f"{compiler_name(mark.compiler)}: {mark.words}" if failed else mark.words,
            (1.0, y),
            (6, 0),
            ("axes fraction", "data"),
            va="center",
            color=_darker(style["color"]),
            fontstyle="italic" if failed else "normal",
            annotation_clip=False,
        )


def _darker(color: str) -> tuple[float, float, float]:
    """Text needs more contrast than a marker."""
    from matplotlib.colors import to_rgb

    red, green, blue = to_rgb(color)
    return 0.7 * red, 0.7 * green, 0.7 * blue


def _limits(rows: Sequence[Row]) -> tuple[float, float]:
    """The ends of the axis: all points, at least 0.9x to 1.1x, and intervals up to ``BEYOND_POINTS``."""
    marks = [mark for row in rows for mark in row.marks]
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
