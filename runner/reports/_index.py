"""index.html: the runs of a folder in a list, newest first, and what became of their averages over time.

One file that opens from disk, without scripts. Its charts are drawn here, as SVG in the page's own colours.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from runner.comparison import CONTROL, GroupSummary
from runner.digits import MISSING, speedup_text
from runner.labels import plain, suite_labels
from runner.reports._pictures import plain_style, svg
from runner.reports._sections import compiler_name
from runner.reports._templates import source, template
from runner.reports.speedup_plot import COLOURS, SHAPES, ticks_between

if TYPE_CHECKING:
    from matplotlib.axes import Axes

INK = "#010203"  # stands for the page's text colour, whatever that is
SHOWN_MEANS = 6  # of one run; the rest folds away
MOST_COLOURS = 6  # the others are too dark for a dark page
MOST_TICKS = 7
BEYOND_MEANS = 1.3  # how far intervals may stretch the axis
CHART_IN = (7.2, 3.4)


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One run as the list shows it. ``state``: "complete", or what is wrong with it in one sentence."""

    name: str
    link: str | None  # to its report, relative to the page; None: there is none
    created: datetime  # UTC
    command: str = ""
    machine: str = ""
    torch: str = ""
    state: str
    damaged: bool = False
    passed: int = 0
    total: int = 0  # records, without those skipped
    groups: tuple[GroupSummary, ...] = ()

    @property
    def conditions(self) -> tuple[tuple[str, str, str, str], ...]:
        """(suite, mode, dtype, device) of its groups, each once."""
        return tuple(dict.fromkeys((g.suite, g.mode, g.dtype, g.device) for g in self.groups))


def render_index(title: str, runs: Sequence[Run]) -> bytes:
    """The page, for the runs in any order. The same runs give the same bytes."""
    from markupsafe import Markup

    labels = suite_labels(group.suite for run in runs for group in run.groups)
    ordered = sorted(runs, key=lambda run: (run.created, run.name), reverse=True)
    text = template("index.html.j2").render(
        title=plain(title),
        style=Markup(source("report.css")),  # noqa: S704 - our own file
        runs=[_row(run, labels) for run in ordered],
        trends=[
            {"title": name, "chart": Markup(chart)}  # noqa: S704 - matplotlib escapes what it draws
            for name, chart in _trends(ordered[::-1], labels)
        ],
        damaged=sum(run.damaged for run in runs),
    )
    return text.encode()


def _row(run: Run, labels: dict[str, str]) -> dict[str, Any]:
    several = len(run.conditions) > 1
    means = [_mean(group, labels, several=several) for group in run.groups]
    return {
        "name": plain(run.name),
        "link": run.link,
        "when": run.created.strftime("%Y-%m-%d %H:%M"),
        "what": [plain(", ".join((labels[suite], *rest))) for suite, *rest in run.conditions],
        "command": plain(run.command),
        "machine": plain(run.machine),
        "torch": plain(run.torch),
        "state": plain(run.state),
        "damaged": run.damaged,
        "passed": f"{run.passed / run.total:.0%}, {run.passed}/{run.total}" if run.total else MISSING,
        "means": means[:SHOWN_MEANS],
        "more": means[SHOWN_MEANS:],
    }


def _mean(group: GroupSummary, labels: dict[str, str], *, several: bool) -> tuple[str, str]:
    """(compiler, geometric mean with what it is a mean of)"""
    where = f" ({labels[group.suite]} {group.mode} {group.dtype} {group.device})" if several else ""
    count = f"{group.averaged}/{group.total}"
    if group.geomean_speedup is None:
        return plain(compiler_name(group.compiler) + where), f"none, {count}"
    mean = speedup_text(group.geomean_speedup, group.geomean_low, group.geomean_high)
    return plain(compiler_name(group.compiler) + where), f"{mean}, {count}"


# -- trends ----------------------------------------------------------------------

Point = tuple[datetime, GroupSummary]


def _trends(runs: Sequence[Run], labels: dict[str, str]) -> Iterator[tuple[str, str]]:
    """(title, SVG) of everything that was measured on one machine more than once. Oldest run first."""
    found: dict[tuple[str, ...], dict[str, list[Point]]] = {}
    for run in runs:
        for group in run.groups:
            key = (labels[group.suite], group.mode, group.dtype, group.device, run.machine)
            found.setdefault(key, {}).setdefault(group.compiler, []).append((run.created, group))
    for number, (which, lines) in enumerate(found.items()):
        if max(len(points) for points in lines.values()) > 1:
            *conditions, machine = which
            title = plain(", ".join(conditions) + (f" on {machine}" if machine else ""))
            yield title, _chart(lines, number)


def _chart(lines: dict[str, list[Point]], number: int) -> str:
    """Geometric means with their intervals above, pass rates below."""
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    with plain_style():
        figure = Figure(figsize=CHART_IN, layout="constrained")
        FigureCanvasSVG(figure)
        figure.patch.set_alpha(0)
        above, below = figure.subplots(2, 1, sharex=True, height_ratios=(3, 1))
        for place, (compiler, points) in enumerate(lines.items()):
            colour, shape = COLOURS[place % MOST_COLOURS], SHAPES[place % len(SHAPES)]
            timed = [(when, g) for when, g in points if g.geomean_speedup is not None]
            style: dict[str, Any] = {"color": colour, "marker": shape, "ms": 4.5, "linewidth": 1.3}
            name = compiler_name(compiler)
            # matplotlib leaves labels that begin with an underscore out of its legend
            above.plot(*_columns([(w, g.geomean_speedup) for w, g in timed]), label=f" {name}", **style)
            for when, group in timed:
                if group.geomean_low is not None and group.geomean_high is not None:
                    ends: Any = [when, when]
                    above.plot(ends, [group.geomean_low, group.geomean_high], color=colour, linewidth=1)
            if compiler != CONTROL:
                below.plot(*_columns([(w, 100 * g.pass_share) for w, g in points]), **style)
        limits = _limits([group for points in lines.values() for _, group in points])
        _dress(above, below, limits, count=len(lines))
        text = svg(figure).decode()
    inside = text[text.index("<svg") :].replace(INK, "currentColor")
    # ids are those of the whole page
    return re.sub(r'(\bid="|url\(#|href="#)', rf"\g<1>t{number}-", inside)


def _columns(points: Sequence[tuple[datetime, float | None]]) -> tuple[Any, Any]:
    return [when for when, _ in points], [value for _, value in points]


def _limits(groups: Sequence[GroupSummary]) -> tuple[float, float]:
    """All means, 0.9x to 1.1x at least, and of the intervals what is not far beyond the means."""
    means = [g.geomean_speedup for g in groups if g.geomean_speedup is not None]
    low, high = min([0.9, *means]), max([1.1, *means])
    lowest = min([low, *(g.geomean_low for g in groups if g.geomean_low)])
    highest = max([high, *(g.geomean_high for g in groups if g.geomean_high)])
    return max(lowest, low / BEYOND_MEANS) / 1.02, min(highest, high * BEYOND_MEANS) * 1.02


def _dress(above: Axes, below: Axes, limits: tuple[float, float], *, count: int) -> None:
    from datetime import timezone

    from matplotlib.dates import AutoDateLocator, ConciseDateFormatter
    from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

    above.set_yscale("log")
    above.set_ylim(limits)
    above.yaxis.set_major_locator(FixedLocator(ticks_between(*above.get_ylim(), MOST_TICKS)))
    above.yaxis.set_minor_locator(NullLocator())
    above.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}x"))
    above.axhline(1.0, color=INK, linewidth=0.8)
    above.set_ylabel("geometric mean", color=INK)
    below.set_ylim(-5, 105)
    below.set_ylabel("passed, %", color=INK)
    dates = AutoDateLocator(tz=timezone.utc, maxticks=8)  # type: ignore[no-untyped-call]
    below.xaxis.set_major_locator(dates)
    below.xaxis.set_major_formatter(ConciseDateFormatter(dates, tz=timezone.utc))  # type: ignore[no-untyped-call]
    below.xaxis.get_offset_text().set_color(INK)
    for ax in (above, below):
        ax.patch.set_alpha(0)
        ax.tick_params(colors=INK)
        ax.grid(color="#808080", alpha=0.3, linewidth=0.5)
        for side in ax.spines.values():
            side.set_visible(False)
    legend = above.legend(
        loc="lower left",
        bbox_to_anchor=(0, 1.0),
        ncols=min(count, 5),
        frameon=False,
        labelcolor=INK,
        borderaxespad=0.2,
        borderpad=0.0,
    )
    legend.set_in_layout(True)
