"""Pass rate, speedup, compile time and memory over time: ``history.png``, and the charts of the page.

A row for each trend, a line for each compiler. A ring is a change beyond noise since the run before.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta, timezone
from typing import TYPE_CHECKING, Any

from runner.analysis.comparison import CONTROL
from runner.reports.parts.axes import COLORS, SHAPES, new_figure, ratio_ticks
from runner.reports.parts.fit import shorten
from runner.reports.parts.pictures import pictures, plain_style, svg
from runner.reports.parts.sections import compiler_name
from runner.runs.history.trends import PANELS, Point, Trend

if TYPE_CHECKING:
    from matplotlib.axes import Axes

FILE = "history.png"
MOST_TRENDS = 8  # rows of the plot: the sections measured last
WIDTH_IN, ROW_IN = 13.0, 2.7
TITLE_WIDTH = 110
MOST_TICKS = 6
CHART_IN = (7.2, 4.4)  # of one trend on the page
INK = "#010203"  # placeholder, replaced by the page's text color
MOST_PAGE_COLORS = 6  # the other colors are too dark for a dark page
LEAST_FACTOR = 1.1  # the smallest factor that an axis shows above and below its middle

VALUES: Mapping[str, Callable[[Point], float | None]] = {
    "pass rate": lambda point: 100 * point.pass_share,
    "speedup": lambda point: point.geomean,
    "compile time": lambda point: point.compile_s,
    "memory": lambda point: point.memory,
}
LABELS = {
    "pass rate": "passed, %",
    "speedup": "speedup, geometric mean",
    "compile time": "compilation, s, geometric mean",
    "memory": "memory, eager / compiled",
}


def render(trends: Sequence[Trend]) -> dict[str, bytes]:
    """The plot's files, by name; empty without trends. The same trends give the same bytes."""
    import matplotlib as mpl

    shown = trends[:MOST_TRENDS]
    if not shown:
        return {}
    with plain_style(), mpl.rc_context({"grid.color": "#DDDDDD"}):
        figure = new_figure(WIDTH_IN, ROW_IN * len(shown))
        rows = figure.subfigures(len(shown), 1, squeeze=False)[:, 0]
        for row, trend in zip(rows, shown, strict=True):
            title = shorten(f"{trend.title}: {trend.runs} runs", TITLE_WIDTH)
            row.suptitle(title, x=0.01, ha="left", fontsize=9, parse_math=False)
            for ax, panel in zip(row.subplots(1, len(PANELS)), PANELS, strict=True):
                _draw(ax, trend, panel)
        return pictures(FILE, figure)


def chart(trend: Trend, number: int) -> str:
    """The chart of one trend as SVG for a page, in the page's colors. ``number``: its place on the page."""
    import matplotlib as mpl

    ink: dict[Any, str] = dict.fromkeys(("text.color", "axes.labelcolor", "xtick.color", "ytick.color"), INK)
    with plain_style(), mpl.rc_context({**ink, "grid.color": "#808080", "grid.alpha": 0.3}):
        figure = new_figure(*CHART_IN)
        figure.patch.set_alpha(0)
        for ax, panel in zip(figure.subplots(2, 2).flat, PANELS, strict=True):
            ax.patch.set_alpha(0)
            _draw(ax, trend, panel, MOST_PAGE_COLORS)
            for side in ax.spines.values():
                side.set_color(INK)
        text = svg(figure).decode()
    inside = text[text.index("<svg") :].replace(INK, "currentColor")
    # ids must be unique in the whole page
    return re.sub(r'(\bid="|url\(#|href="#)', rf"\g<1>t{number}-", inside)


def _draw(ax: Axes, trend: Trend, panel: str, colors: int = len(COLORS)) -> None:
    import matplotlib as mpl

    ink = mpl.rcParams["text.color"]
    value = VALUES[panel]
    found: list[float] = []
    for place, (compiler, points) in enumerate(trend.lines.items()):
        # only the speedup of the A/A control is meaningful
        shown = points if compiler != CONTROL or panel == "speedup" else ()
        known = [(point, number) for point in shown if (number := value(point)) is not None]
        xs: Any = [point.when for point, _ in known]
        ys = [number for _, number in known]
        found += ys
        color, shape = COLORS[place % colors], SHAPES[place % len(SHAPES)]
        style: dict[str, Any] = {"color": color, "marker": shape, "ms": 3.5, "linewidth": 1.1}
        # matplotlib leaves labels that begin with an underscore out of its legend
        ax.plot(xs, ys, label=f" {compiler_name(compiler)}", **style)
        for point in points if panel == "speedup" else ():
            if point.geomean_low is not None and point.geomean_high is not None:
                ends: Any = [point.when, point.when]
                ax.plot(ends, [point.geomean_low, point.geomean_high], color=color, linewidth=0.8)
        ringed = [(p.when, number, p.marks[panel]) for p, number in known if p.marks and panel in p.marks]
        for when, number, what in ringed:
            at: Any = (when, number)
            ax.plot([at[0]], [at[1]], "o", ms=9, mfc="none", mec=ink, mew=0.9, zorder=4)
            offset = (0, -12 if place % 2 else 7)  # labels of simultaneous changes must not overlap
            ax.annotate(what, at, xytext=offset, textcoords="offset points", ha="center", fontsize=6)
    _dress(ax, panel, found)
    _dates(ax, trend)
    if panel == PANELS[0]:
        ax.legend(frameon=False, fontsize=6.5, loc="lower left")


def _dress(ax: Axes, panel: str, found: Sequence[float]) -> None:
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    ax.set_title(LABELS[panel], loc="left", fontsize=8)
    ax.grid(linewidth=0.5)
    ax.set_axisbelow(True)
    for side in ("top", "right"):
        ax.spines[side].set_visible(False)
    if panel == "pass rate":
        ax.set_ylim(-5, 108)
        return
    if not found:
        ax.set_yticks([])
        return
    ax.set_yscale("log")
    low, high = min(found), max(found)
    middle = (low * high) ** 0.5
    ax.set_ylim(min(low / 1.05, middle / LEAST_FACTOR), max(high * 1.05, middle * LEAST_FACTOR))
    ratio_ticks(ax.yaxis, ax.get_ylim(), MOST_TICKS)
    if panel == "compile time":
        ax.yaxis.set_major_locator(MaxNLocator(nbins=MOST_TICKS - 1))
        ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))


def _dates(ax: Axes, trend: Trend) -> None:
    from matplotlib.dates import AutoDateLocator, ConciseDateFormatter

    whens: Any = [point.when for points in trend.lines.values() for point in points]
    margin = max((max(whens) - min(whens)) / 20, timedelta(minutes=1))
    ax.set_xlim(min(whens) - margin, max(whens) + margin)
    dates = AutoDateLocator(tz=timezone.utc, minticks=2, maxticks=8)  # type: ignore[no-untyped-call]
    ax.xaxis.set_major_locator(dates)
    ax.xaxis.set_major_formatter(ConciseDateFormatter(dates, tz=timezone.utc))  # type: ignore[no-untyped-call]
    ax.tick_params(labelsize=7)
