"""``{suite}_{dtype}.png``, ``.svg``: every speedup with its 95 % interval, a panel for each mode and device.

A forest plot: a row a model, in plan order, with a marker a compiler and its
number at the right; where there is no valid speedup, the status stands there
instead. The last row is the geometric mean over the models that passed.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Any

from runner.comparison import Comparison, GroupSummary, Summary, Verdict
from runner.digits import share_text, speedup_text
from runner.labels import batch_text, case_name
from runner.reports._fit import shorten
from runner.reports._pictures import ABOVE, by_name, plain_style
from runner.reports._sections import (
    Section,
    compiler_name,
    compilers,
    environment_line,
    plot_name,
    sections,
)
from runner.reports._telling import telling

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FORMATS = ("png", "svg")
# Okabe and Ito's colours, told apart by colour-blind readers; the shapes tell them apart without colour.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#444444")
SHAPES = ("o", "s", "^", "D", "v", "P", "X", "p")
GREY = "#666666"
WIDTH_IN = 11.0
LINE_IN = 0.17  # height of one compiler's line
PAD_LINES = 0.9  # between two models, in lines
MEAN = "geometric mean"
TICKS = (
    tuple(0.5 + 0.05 * i for i in range(30)),
    (0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.1, 1.2, 1.3, 1.4, 1.5, 1.75, 2.0),
    (0.25, 0.33, 0.5, 0.67, 0.8, 1.0, 1.25, 1.5, 2.0, 2.5, 3.0, 4.0),
    (0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0),
    tuple(10.0**i for i in range(-6, 7)),
)
MOST_TICKS = 10
MOST_RATIO = 20.0  # of the axis' ends, for ticks finer than a decade
BEYOND_POINTS = 1.3  # how far intervals may stretch the axis beyond the outermost points
FACTS_WIDTH = 170  # characters
TITLE_WIDTH = 90
LABEL_WIDTH = 48
MOST_MODELS = 100  # in a panel
TELLING = 50  # of more, those furthest from 1


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
    return by_name(panels, lambda found: draw(found, order))


def draw(panels: Sequence[Section], order: Sequence[str]) -> Figure:
    """The figure of one suite in one dtype. ``order``: all compilers of the run, so that colours keep."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    shown = [telling(panel, most=MOST_MODELS, otherwise=TELLING) for panel in panels]
    rows = [tuple(_rows(panel)) for panel, _ in shown]
    heights = [_lines(panel_rows) * LINE_IN + 1.3 for panel_rows in rows]
    with plain_style():
        figure = Figure(figsize=(WIDTH_IN, sum(heights)), layout="constrained")
        FigureCanvasAgg(figure)
        axes = figure.subplots(len(panels), 1, squeeze=False, height_ratios=heights)[:, 0]
        limits = _limits([row for panel_rows in rows for row in panel_rows])
        for ax, (panel, left_out), panel_rows in zip(axes, shown, rows, strict=True):
            ax.set_xscale("log")
            ax.set_xlim(limits)
            _draw_panel(ax, panel, panel_rows, _styles(order))
            _draw_title(ax, panel, left_out)
    return figure


def _rows(panel: Section) -> Iterator[Row]:
    for _, group in groupby(panel.comparisons, key=lambda c: c.record.job.key):
        members = tuple(group)
        case = members[0].record.job.case
        label = f"{shorten(case_name(case), LABEL_WIDTH)}\nbatch {batch_text(case)}"
        yield Row(label=label, marks=tuple(_mark(c) for c in members))
    means = tuple(_mean_mark(group) for group in panel.groups)
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
    count = f"{group.averaged}/{group.total}"
    if group.geomean_speedup is None:
        return Mark(compiler=group.compiler, words=f"none, {count}")
    text = speedup_text(group.geomean_speedup, group.geomean_low, group.geomean_high)
    return Mark(
        compiler=group.compiler,
        words=f"{text}, {count}",
        value=group.geomean_speedup,
        low=group.geomean_low,
        high=group.geomean_high,
        solid=True,
    )


Style = dict[str, Any]


def _styles(order: Sequence[str]) -> dict[str, Style]:
    return {
        compiler: {"color": COLOURS[i % len(COLOURS)], "marker": SHAPES[i % len(SHAPES)]}
        for i, compiler in enumerate(order)
    }


def _lines(rows: Sequence[Row]) -> float:
    return sum(_row_lines(row) for row in rows)


def _row_lines(row: Row) -> float:
    return max(2.0, len(row.marks)) + PAD_LINES  # a label has two lines


def _draw_panel(ax: Axes, panel: Section, rows: Sequence[Row], styles: Mapping[str, Style]) -> None:
    total = _lines(rows)
    ax.set_ylim(total, 0)  # the first model on top
    threshold = panel.comparisons[0].record.job.protocol.noise_threshold
    ax.axvspan(1 / (1 + threshold), 1 + threshold, color="#DDDDDD", zorder=0, linewidth=0)
    ax.axvline(1.0, color="black", linewidth=0.8, zorder=1)
    top = 0.0
    centres = []
    for place, row in enumerate(rows):
        height = _row_lines(row)
        if place > 0:
            is_mean = place == len(rows) - 1
            ax.axhline(
                top, color="black" if is_mean else "#CCCCCC", linewidth=0.8 if is_mean else 0.5, zorder=0
            )
        _draw_row(ax, row, top + height / 2, styles)
        centres.append(top + height / 2)
        top += height
    ax.set_yticks(centres, [row.label for row in rows], parse_math=False)
    ax.tick_params(axis="y", length=0)
    _draw_axis(
        ax,
        f"speedup over eager (log scale); shaded: noise threshold \N{PLUS-MINUS SIGN}{share_text(threshold)}",
    )
    _draw_legend(ax, panel.compilers, styles)


def _draw_row(ax: Axes, row: Row, centre: float, styles: Mapping[str, Style]) -> None:
    for place, mark in enumerate(row.marks):
        y = centre + place - (len(row.marks) - 1) / 2
        style = styles[mark.compiler]
        if mark.value is not None:
            face = style["color"] if mark.solid else "white"
            if mark.low is not None and mark.high is not None:
                ax.plot([mark.low, mark.high], [y, y], color=style["color"], linewidth=1.3, zorder=2)
            size = 6.0 if row.label.startswith(MEAN) else 4.5
            ax.plot(mark.value, y, style["marker"], color=style["color"], mfc=face, ms=size, zorder=3)
        failed = mark.value is None
        ax.annotate(
            f"{compiler_name(mark.compiler)}: {mark.words}" if failed else mark.words,
            xy=(1.0, y),
            xycoords=("axes fraction", "data"),
            xytext=(6, 0),
            textcoords="offset points",
            va="center",
            fontsize=7,
            color=_darker(style["color"]),
            fontstyle="italic" if failed else "normal",
            annotation_clip=False,
            parse_math=False,
        )


def _darker(colour: str) -> tuple[float, float, float]:
    """Text needs more contrast than a marker."""
    from matplotlib.colors import to_rgb

    red, green, blue = to_rgb(colour)
    return 0.7 * red, 0.7 * green, 0.7 * blue


def _limits(rows: Sequence[Row]) -> tuple[float, float]:
    """All points, 0.9x to 1.1x at least, and of the intervals what is not far beyond the points."""
    marks = [mark for row in rows for mark in row.marks]
    values = [mark.value for mark in marks if mark.value is not None]
    lowest, highest = min([0.9, *values]), max([1.1, *values])
    low = max(min([lowest, *(m.low for m in marks if m.low)]), lowest / BEYOND_POINTS)
    high = min(max([highest, *(m.high for m in marks if m.high)]), highest * BEYOND_POINTS)
    margin = math.exp(0.03 * math.log(high / low))
    return low / margin, high * margin


def ticks_between(low: float, high: float, most: int) -> Sequence[float]:
    """Round speedups for a logarithmic axis with these ends: not more than ``most``, else decades."""
    choices = [[tick for tick in ticks if low <= tick <= high] for ticks in TICKS]
    fine = (found for found in choices if len(found) <= most and high / low < MOST_RATIO)
    return next(fine, choices[-1])


def _draw_axis(ax: Axes, label: str) -> None:
    from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

    ax.xaxis.set_major_locator(FixedLocator(ticks_between(*ax.get_xlim(), MOST_TICKS)))
    ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}x"))
    ax.xaxis.set_minor_locator(NullLocator())
    ax.grid(axis="x", color="#DDDDDD", linewidth=0.5, zorder=0)
    ax.set_axisbelow(True)
    ax.set_xlabel(label)
    for side in ("top", "right", "left"):
        ax.spines[side].set_visible(False)


def _draw_title(ax: Axes, panel: Section, left_out: str) -> None:
    """Above the legend: the title, and in small print what the numbers depend on."""
    parts = (f"{panel.rounds} rounds", environment_line(panel.environment), left_out)
    facts = textwrap.wrap("; ".join(part for part in parts if part), FACTS_WIDTH, max_lines=4)
    height = 9 * len(facts)
    title = shorten(panel.title, TITLE_WIDTH)
    ax.set_title(title, loc="left", fontsize=11, fontweight="bold", pad=22 + height, parse_math=False)
    _note(ax, "\n".join(facts), (0.0, 1.0), (0, 17))
    _note(ax, "speedup [95 % interval]", (1.0, 1.0), (6, 3))


def _note(ax: Axes, text: str, corner: tuple[float, float], offset: tuple[int, int]) -> None:
    ax.annotate(
        text,
        xy=corner,
        xycoords="axes fraction",
        xytext=offset,
        textcoords="offset points",
        va="bottom",
        fontsize=7,
        color=GREY,
        parse_math=False,
    )


def _draw_legend(ax: Axes, names: Sequence[str], styles: Mapping[str, Style]) -> None:
    from matplotlib.lines import Line2D

    handles = [
        Line2D([], [], label=compiler_name(name), linewidth=1.3, ms=4.5, **styles[name]) for name in names
    ]
    hollow = "hollow: same or inconclusive"
    handles.append(Line2D([], [], label=hollow, linewidth=0, ms=4.5, marker="o", color=GREY, mfc="white"))
    ax.legend(handles=handles, ncols=len(handles), fontsize=8, **ABOVE)
