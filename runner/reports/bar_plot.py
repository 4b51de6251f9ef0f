"""``{suite}_{dtype}_bars.png`` and ``.svg``: a bar for each model and compiler.

Bars start at 1, and up is faster. The axis is logarithmic, so that bars of 2x and 0.5x
have the same height. Whiskers are 95 % intervals. A cross at 1 replaces the bar if there
is no valid speedup.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import TYPE_CHECKING

from runner.analysis.comparison import Comparison, Summary
from runner.analysis.digits import ratio_text
from runner.labels import case_name
from runner.reports.parts.axes import COLORS, GREY, light_grid, new_figure, note, ratio_ticks
from runner.reports.parts.fit import shortened
from runner.reports.parts.pictures import ABOVE, by_name, plain_style
from runner.reports.parts.sections import Section, compiler_name, compilers, plot_name, sections
from runner.reports.parts.top_models import top_models

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FORMATS = ("png", "svg")
WIDTH_IN, PANEL_IN = 11.0, 2.9
MOST_MODELS = 40  # in a row; more models need more rows
MOST_ROWS = 3  # in a panel; with more models, one row shows the speedups furthest from 1
LABEL_WIDTH = 28
MOST_TICKS = 7
GAP = 0.2  # between two models, as a share of the width of a model

Models = tuple[tuple[Comparison, ...], ...]
"""The comparisons of each model."""


def render(summary: Summary) -> Mapping[str, bytes]:
    order = compilers(summary)
    panels = [(plot_name(s.suite, s.dtype, "_bars"), s) for s in sections(summary) if s.rounds]
    return by_name(panels, lambda found: draw(found, order))


def draw(panels: Sequence[Section], order: Sequence[str]) -> Figure:
    """The figure of one suite in one dtype. ``order``: all compilers of the run, which fixes their colors."""
    shown = [top_models(panel, most=MOST_ROWS * MOST_MODELS, otherwise=MOST_MODELS) for panel in panels]
    rows = [(panel, left_out, models) for panel, left_out in shown for models in _rows_of_models(panel)]
    colors = {compiler: COLORS[i % len(COLORS)] for i, compiler in enumerate(order)}
    with plain_style():
        figure = new_figure(WIDTH_IN, PANEL_IN * len(rows))
        axes = figure.subplots(len(rows), 1, squeeze=False)[:, 0]
        limits = _limits([c for *_, models in rows for members in models for c in members])
        for ax, (panel, left_out, models) in zip(axes, rows, strict=True):
            ax.set_yscale("log")
            ax.set_ylim(limits)
            _draw_row(ax, panel, models, colors)
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


def _draw_row(ax: Axes, panel: Section, models: Models, colors: Mapping[str, str]) -> None:
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
        ax.bar(xs, [v - 1 for v in values], width, 1.0, color=colors[compiler], label=label, zorder=2)
        for x, _, c in drawn:
            if c.ci_low is not None and c.ci_high is not None:
                ax.plot([x, x], [c.ci_low, c.ci_high], color="black", linewidth=0.7, zorder=3)
    if missing:
        label = "no valid speedup"
        ax.plot(missing, [1.0] * len(missing), "x", color=GREY, ms=4, label=label, zorder=3)
    ax.axhline(1.0, color="black", linewidth=0.8, zorder=4)
    ax.set_xlim(-0.6, max(len(models), 4) - 0.4)
    full = [case_name(members[0].record.job.case) for members in models]
    short = shortened(full, LABEL_WIDTH)
    labels = [short[name] for name in full]
    ax.set_xticks(
        range(len(models)), labels, rotation=35, ha="right", rotation_mode="anchor", parse_math=False
    )
    ax.tick_params(axis="x", length=0)
    ratio_ticks(ax.yaxis, ax.get_ylim(), MOST_TICKS)
    light_grid(ax, "y")
    ax.set_ylabel("speedup over eager")
    ax.legend(ncols=len(names) + 1, fontsize=7.5, **ABOVE)


def _draw_title(ax: Axes, panel: Section, left_out: str) -> None:
    title = f"{panel.title}; in the legend the geometric mean"
    ax.set_title(title, loc="left", fontsize=10, pad=27 if left_out else 18, parse_math=False)
    if left_out:
        note(ax, left_out, (0.0, 1.0), (0, 16), color=GREY)
