"""``{suite}_{dtype}_bars.png`` and ``.svg``: the field's picture, a bar for each model and compiler.

Bars begin at 1, up is faster, and the axis is logarithmic, so that twice as fast and
half as fast are as tall. Whiskers are 95 % intervals. Where there is no valid
speedup there is no bar, but a cross at 1.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import TYPE_CHECKING

from runner.comparison import Comparison, Summary
from runner.digits import ratio_text
from runner.labels import case_name
from runner.reports._fit import shorten
from runner.reports._pictures import ABOVE, by_name, plain_style
from runner.reports._sections import Section, compiler_name, compilers, plot_name, sections
from runner.reports._telling import telling
from runner.reports.speedup_plot import COLOURS, GREY, ticks_between

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FORMATS = ("png", "svg")
WIDTH_IN, PANEL_IN = 11.0, 2.9
MOST_MODELS = 40  # side by side; more go into further rows
MOST_ROWS = 3  # of one panel; of more models a single row, those furthest from 1
LABEL_WIDTH = 28
MOST_TICKS = 7
GAP = 0.2  # between two models, of the room that each has

Models = tuple[tuple[Comparison, ...], ...]
"""Of each model, its comparisons."""


def render(summary: Summary) -> Mapping[str, bytes]:
    order = compilers(summary)
    panels = [(plot_name(s.suite, s.dtype, "_bars"), s) for s in sections(summary) if s.rounds]
    return by_name(panels, lambda found: draw(found, order))


def draw(panels: Sequence[Section], order: Sequence[str]) -> Figure:
    """The figure of one suite in one dtype. ``order``: all compilers of the run, so that colours keep."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    shown = [telling(panel, most=MOST_ROWS * MOST_MODELS, otherwise=MOST_MODELS) for panel in panels]
    rows = [(panel, left_out, models) for panel, left_out in shown for models in _rows_of_models(panel)]
    colours = {compiler: COLOURS[i % len(COLOURS)] for i, compiler in enumerate(order)}
    with plain_style():
        figure = Figure(figsize=(WIDTH_IN, PANEL_IN * len(rows)), layout="constrained")
        FigureCanvasAgg(figure)
        axes = figure.subplots(len(rows), 1, squeeze=False)[:, 0]
        limits = _limits([c for *_, models in rows for members in models for c in members])
        for ax, (panel, left_out, models) in zip(axes, rows, strict=True):
            ax.set_yscale("log")
            ax.set_ylim(limits)
            _draw_row(ax, panel, models, colours)
            _draw_title(ax, panel, left_out)
    return figure


def _rows_of_models(panel: Section) -> Iterator[Models]:
    models = [tuple(group) for _, group in groupby(panel.comparisons, key=lambda c: c.record.job.key)]
    for first in range(0, len(models), MOST_MODELS):
        yield tuple(models[first : first + MOST_MODELS])


def _valid(comparison: Comparison) -> float | None:
    return comparison.speedup if comparison.record.status.passed else None


def _limits(comparisons: Sequence[Comparison]) -> tuple[float, float]:
    values = [value for c in comparisons if (value := _valid(c)) is not None]
    low, high = min([0.8, *values]), max([1.25, *values])
    margin = math.exp(0.05 * math.log(high / low))
    return low / margin, high * margin


def _draw_row(ax: Axes, panel: Section, models: Models, colours: Mapping[str, str]) -> None:
    from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

    names = panel.compilers
    width = (1 - GAP) / len(names)
    missing: list[float] = []
    for place, compiler in enumerate(names):
        bars = [
            (number + (place - (len(names) - 1) / 2) * width, c)
            for number, members in enumerate(models)
            for c in members
            if c.compiler == compiler
        ]
        missing += [x for x, c in bars if _valid(c) is None]
        drawn = [(x, value, c) for x, c in bars if (value := _valid(c)) is not None]
        xs, values = [x for x, _, _ in drawn], [value for _, value, _ in drawn]
        means = {group.compiler: group.geomean_speedup for group in panel.groups}
        mean = means.get(compiler)
        label = compiler_name(compiler) + (f", {ratio_text(mean)}" if mean is not None else "")
        ax.bar(xs, [v - 1 for v in values], width, 1.0, color=colours[compiler], label=label, zorder=2)
        for x, _, c in drawn:
            if c.ci_low is not None and c.ci_high is not None:
                ax.plot([x, x], [c.ci_low, c.ci_high], color="black", linewidth=0.7, zorder=3)
    if missing:
        label = "no valid speedup"
        ax.plot(missing, [1.0] * len(missing), "x", color=GREY, ms=4, label=label, zorder=3)
    ax.axhline(1.0, color="black", linewidth=0.8, zorder=4)
    ax.set_xlim(-0.6, max(len(models), 4) - 0.4)
    labels = [shorten(case_name(members[0].record.job.case), LABEL_WIDTH) for members in models]
    ax.set_xticks(
        range(len(models)), labels, rotation=35, ha="right", rotation_mode="anchor", parse_math=False
    )
    ax.tick_params(axis="x", length=0)
    ax.yaxis.set_major_locator(FixedLocator(ticks_between(*ax.get_ylim(), MOST_TICKS)))
    ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}x"))
    ax.yaxis.set_minor_locator(NullLocator())
    ax.grid(axis="y", color="#DDDDDD", linewidth=0.5, zorder=0)
    ax.set_axisbelow(True)
    ax.set_ylabel("speedup over eager")
    for side in ("top", "right"):
        ax.spines[side].set_visible(False)
    ax.legend(ncols=len(names) + 1, fontsize=7.5, **ABOVE)


def _draw_title(ax: Axes, panel: Section, left_out: str) -> None:
    title = f"{panel.title}; in the legend the geometric mean"
    ax.set_title(title, loc="left", fontsize=10, pad=27 if left_out else 18, parse_math=False)
    if left_out:
        ax.annotate(
            left_out,
            xy=(0.0, 1.0),
            xycoords="axes fraction",
            xytext=(0, 16),
            textcoords="offset points",
            fontsize=7,
            color=GREY,
            parse_math=False,
        )
