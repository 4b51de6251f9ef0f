"""``history.png`` and ``.svg``: pass rate, speedup, compilation time and memory over time.

A row for each section, a line for each compiler. A ring is a change beyond noise since the run before.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta, timezone
from typing import TYPE_CHECKING, Any

from runner.history.trends import PANELS, Point, Section
from runner.reports._fit import shorten
from runner.reports._pictures import pictures, plain_style
from runner.reports._sections import compiler_name
from runner.reports.speedup_plot import COLOURS, SHAPES, ticks_between

if TYPE_CHECKING:
    from matplotlib.axes import Axes

FILE = "history.png"
MOST_SECTIONS = 8  # rows of one picture: those measured last
WIDTH_IN, ROW_IN = 13.0, 2.7
TITLE_WIDTH = 110
MOST_TICKS = 6
LEAST_FACTOR = 1.1  # that an axis shows, up and down from its middle

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


def render(sections: Sequence[Section]) -> dict[str, bytes]:
    """The picture's files, by name; none for no sections. The same sections give the same bytes."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    shown = sections[:MOST_SECTIONS]
    if not shown:
        return {}
    with plain_style():
        figure = Figure(figsize=(WIDTH_IN, ROW_IN * len(shown)), layout="constrained")
        FigureCanvasAgg(figure)
        rows = figure.subfigures(len(shown), 1, squeeze=False)[:, 0]
        for row, section in zip(rows, shown, strict=True):
            title = shorten(f"{section.title}: {section.runs} runs", TITLE_WIDTH)
            row.suptitle(title, x=0.01, ha="left", fontsize=9, parse_math=False)
            for ax, panel in zip(row.subplots(1, len(PANELS)), PANELS, strict=True):
                _draw(ax, section, panel)
        return pictures(FILE, figure)


def _draw(ax: Axes, section: Section, panel: str) -> None:
    value = VALUES[panel]
    found: list[float] = []
    for place, (compiler, points) in enumerate(section.lines.items()):
        known = [(point, number) for point in points if (number := value(point)) is not None]
        xs: Any = [point.when for point, _ in known]
        ys = [number for _, number in known]
        found += ys
        colour, shape = COLOURS[place % len(COLOURS)], SHAPES[place % len(SHAPES)]
        style: dict[str, Any] = {"color": colour, "marker": shape, "ms": 3.5, "linewidth": 1.1}
        # matplotlib leaves labels that begin with an underscore out of its legend
        ax.plot(xs, ys, label=f" {compiler_name(compiler)}", **style)
        ringed = [(p.when, number, p.marks[panel]) for p, number in known if p.marks and panel in p.marks]
        for when, number, what in ringed:
            at: Any = (when, number)
            ax.plot([at[0]], [at[1]], "o", ms=9, mfc="none", mec="black", mew=0.9, zorder=4)
            offset = (0, -12 if place % 2 else 7)  # of two lines that change at once, both are to be read
            ax.annotate(what, at, xytext=offset, textcoords="offset points", ha="center", fontsize=6)
    _dress(ax, panel, found)
    _dates(ax, section)
    if panel == PANELS[0] and len(section.lines) > 0:
        ax.legend(frameon=False, fontsize=6.5, loc="lower left")


def _dress(ax: Axes, panel: str, found: Sequence[float]) -> None:
    from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator, NullLocator

    ax.set_title(LABELS[panel], loc="left", fontsize=8)
    ax.grid(color="#DDDDDD", linewidth=0.5)
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
    if panel == "compile time":
        ax.yaxis.set_major_locator(MaxNLocator(nbins=MOST_TICKS - 1))
    else:
        ax.yaxis.set_major_locator(FixedLocator(ticks_between(*ax.get_ylim(), MOST_TICKS)))
    ax.yaxis.set_minor_locator(NullLocator())
    unit = "" if panel == "compile time" else "x"
    ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}{unit}"))


def _dates(ax: Axes, section: Section) -> None:
    from matplotlib.dates import AutoDateLocator, ConciseDateFormatter

    whens: Any = [point.when for points in section.lines.values() for point in points]
    margin = max((max(whens) - min(whens)) / 20, timedelta(minutes=1))
    ax.set_xlim(min(whens) - margin, max(whens) + margin)
    dates = AutoDateLocator(tz=timezone.utc, minticks=2, maxticks=8)  # type: ignore[no-untyped-call]
    ax.xaxis.set_major_locator(dates)
    ax.xaxis.set_major_formatter(ConciseDateFormatter(dates, tz=timezone.utc))  # type: ignore[no-untyped-call]
    ax.tick_params(labelsize=7)
