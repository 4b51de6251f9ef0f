"""The history as a page, ``index.html``: a list of all runs, and the trends of their results as charts.

The page opens from disk and has no scripts. A chart has a line for each compiler over time.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

from runner.analysis.comparison import CONTROL
from runner.labels import plain
from runner.reports.pages.templates import template
from runner.reports.parts.axes import COLORS, SHAPES, new_figure, ratio_ticks
from runner.reports.parts.pictures import plain_style, svg
from runner.reports.parts.sections import compiler_name
from runner.runs.history.runs import Group, Run, Trend, status_changes, trends
from runner.store.invocation import program
from runner.store.run_folder import write_asked

if TYPE_CHECKING:
    from matplotlib.axes import Axes

PAGE = "index.html"
SHOWN_GROUPS = 6  # of each run; the rest is folded
SHOWN_CHANGES = 20
MOST_TICKS = 6
SIZE_IN = (7.2, 4.4)
INK = "#010203"  # placeholder, replaced by the page's text color
MOST_COLORS = 6  # the other colors are too dark for a dark page
LEAST_MARGIN = 1.05  # the factor between the data and the end of an axis

SPEEDUP, PASS_RATE, COMPILE = "speedup, geometric mean", "passed, %", "compilation, s, mean"
PANELS: Mapping[str, Callable[[Group], float | None]] = {
    PASS_RATE: lambda group: (
        100 * group["passed"] / group["total"] if group["total"] and group["checked"] else None
    ),
    SPEEDUP: lambda group: group["geomean_speedup"],
    COMPILE: lambda group: group["mean_compilation_latency_s"] or None,
    "memory, eager / compiled": lambda group: group["mean_memory_ratio"],
}


def write_page(folder: Path, runs: Sequence[Run]) -> Path:
    """Writes ``folder/index.html`` from the runs, oldest first. The same runs give the same bytes."""
    text = template("index.html.j2").render(
        title=plain(folder.resolve().name or str(folder)),
        runs=runs[::-1],
        shown_groups=SHOWN_GROUPS,
        changes=list(status_changes(runs))[:SHOWN_CHANGES],
        trends=[
            {"title": title, "chart": chart(trend, number)}
            for number, (title, trend) in enumerate(trends(runs).items())
        ],
        damaged=sum(run.damaged for run in runs),
        program=" ".join(program()),
    )
    page = folder / PAGE
    write_asked("--history", page, text.encode())
    return page


def chart(trend: Trend, number: int) -> str:
    """The chart as SVG for a page, in the page's colors. ``number``: its place on the page."""
    import matplotlib as mpl

    ink: dict[Any, str] = dict.fromkeys(("text.color", "axes.labelcolor", "xtick.color", "ytick.color"), INK)
    with plain_style(), mpl.rc_context({**ink, "grid.color": "#808080", "grid.alpha": 0.3}):
        figure = new_figure(*SIZE_IN)
        figure.patch.set_alpha(0)
        for ax, panel in zip(figure.subplots(2, 2).flat, PANELS, strict=True):
            ax.patch.set_alpha(0)
            _draw(ax, trend, panel)
            for side in ax.spines.values():
                side.set_color(INK)
        text = svg(figure).decode()
    inside = text[text.index("<svg") :].replace(INK, "currentColor")
    # ids must be unique in the whole page
    return re.sub(r'(\bid="|url\(#|href="#)', rf"\g<1>t{number}-", inside)


def _draw(ax: Axes, trend: Trend, panel: str) -> None:
    for place, (compiler, points) in enumerate(trend.items()):
        # only the speedup of the A/A control is meaningful
        shown = points if compiler != CONTROL or panel == SPEEDUP else ()
        known = [(run.created, y, group) for run, group in shown if (y := PANELS[panel](group)) is not None]
        xs: Any = [when for when, _, _ in known]
        color, shape = COLORS[place % MOST_COLORS], SHAPES[place % len(SHAPES)]
        style: dict[str, Any] = {"color": color, "marker": shape, "ms": 3.5, "linewidth": 1.1}
        # matplotlib leaves labels that begin with an underscore out of its legend
        ax.plot(xs, [y for _, y, _ in known], label=f" {compiler_name(compiler)}", **style)
        for when, _, group in known if panel == SPEEDUP else ():
            ends: Any = [[when, when], [group["geomean_low"], group["geomean_high"]]]
            if None not in ends[1]:
                ax.plot(*ends, color=color, linewidth=0.8)
    ax.set_title(panel, loc="left", fontsize=8)
    ax.grid(linewidth=0.5)
    ax.set_axisbelow(True)
    ax.spines[["top", "right"]].set_visible(False)
    _values(ax, panel)
    _dates(ax, trend)


def _values(ax: Axes, panel: str) -> None:
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    if panel == PASS_RATE:
        ax.set_ylim(-5, 108)
        ax.legend(frameon=False, fontsize=6.5, loc="lower left")
        return
    low, high = ax.dataLim.intervaly
    if not low <= high:  # nothing is drawn
        ax.set_yticks([])
        return
    ax.set_yscale("log")
    margin = max(LEAST_MARGIN, (high / low) ** 0.1)
    ax.set_ylim(low / margin, high * margin)
    ratio_ticks(ax.yaxis, ax.get_ylim(), MOST_TICKS)
    if panel == COMPILE:
        ax.yaxis.set_major_locator(MaxNLocator(nbins=MOST_TICKS - 1))
        ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))


def _dates(ax: Axes, trend: Trend) -> None:
    from matplotlib.dates import AutoDateLocator, ConciseDateFormatter

    whens: Any = [run.created for points in trend.values() for run, _ in points]
    margin = max((max(whens) - min(whens)) / 20, timedelta(minutes=1))
    ax.set_xlim(min(whens) - margin, max(whens) + margin)
    dates = AutoDateLocator(tz=timezone.utc, minticks=2, maxticks=8)  # type: ignore[no-untyped-call]
    ax.xaxis.set_major_locator(dates)
    ax.xaxis.set_major_formatter(ConciseDateFormatter(dates, tz=timezone.utc))  # type: ignore[no-untyped-call]
    ax.tick_params(labelsize=7)
