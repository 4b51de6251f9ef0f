"""``{suite}_{dtype}_curves.png``, ``.svg``: the curves of ``--sweep``, a row for each model and axis.

Speedup, time of a step, compilation and peak memory over the axis, where the records have them: a line for
each candidate, eager in black, and 95 % intervals. A bar at 1.00x is the interval of a crossover. The last
panel has the time of a step over its peak memory: what a candidate pays for memory that it saves.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import groupby
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from runner.analysis.comparison import CONTROL, Comparison, Curve, Summary
from runner.analysis.estimate import Typical
from runner.analysis.sweep.curves import median_ms
from runner.analysis.texts import compiler_name
from runner.labels import case_name
from runner.reports.parts.axes import GREY, light_grid, new_figure, note, ratio_ticks, shorten, styles
from runner.reports.parts.curves import curve_plot
from runner.reports.parts.pictures import by_name, pictures, plain_style, svg
from runner.reports.parts.sections import compilers, environment_line

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FORMATS = ("png", "svg")
WIDTH_IN, ROW_IN = 17.0, 3.0
MOST_ROWS = 12  # of a suite; report.md has all
TITLE_WIDTH = 150
MOST_TICKS = 6
EAGER = {"color": "black", "marker": "o"}

Row = tuple[Curve, ...]
"""The curves of all candidates of a model over an axis."""
Value = Callable[[Comparison], Typical | None]


def _speedup(c: Comparison) -> Typical | None:
    return None if c.speedup is None else Typical(value=c.speedup, low=c.ci_low, high=c.ci_high)


def _ms(side: str) -> Value:
    return lambda c: median_ms(getattr(c.record.samples, f"{side}_s")) if c.record.samples else None


def _single(value: float | None) -> Typical | None:
    return None if value is None else Typical(value=value)


PANELS: Mapping[str, tuple[Value, Value | None]] = MappingProxyType(
    {
        "speedup over eager": (_speedup, None),
        "step (ms)": (_ms("candidate"), _ms("baseline")),
        "compilation (s)": (lambda c: _single(c.compilation_latency_s), None),
        "peak memory (GB)": (lambda c: _single(c.candidate_peak_gb), lambda c: _single(c.baseline_peak_gb)),
        "step (ms) over peak memory": (_ms("candidate"), _ms("baseline")),
    }
)
"""Label of the axis -> what a candidate has there, and eager."""
OVER = {"step (ms) over peak memory": PANELS["peak memory (GB)"]}
"""Panels over something else than the axis of the sweep."""


def render(summary: Summary) -> Mapping[str, bytes]:
    return _drawn(summary, pictures)


def svgs(summary: Summary) -> tuple[bytes, ...]:
    """The pictures in report.html."""
    return tuple(_drawn(summary, lambda name, figure: {name: svg(figure)}).values())


def _drawn(summary: Summary, save: Callable[[str, Figure], dict[str, bytes]]) -> dict[str, bytes]:
    rows = [tuple(curves) for _, curves in groupby(summary.curves, key=lambda curve: curve.family)]
    return by_name(
        [(curve_plot(summary, row[0]), row) for row in rows],
        lambda members: draw(members[:MOST_ROWS], compilers(summary)),
        save,
    )


def draw(rows: Sequence[Row], order: Sequence[str]) -> Figure:
    """``order``: all compilers of the run, which fixes their colors."""
    with plain_style():
        figure = new_figure(WIDTH_IN, ROW_IN * len(rows))
        for axes, row in zip(figure.subplots(len(rows), len(PANELS), squeeze=False), rows, strict=True):
            for ax, label in zip(axes, PANELS, strict=True):
                _draw_panel(ax, label, row, styles(order))
            _draw_title(axes[0], row)
    return figure


def _draw_panel(ax: Axes, label: str, row: Row, of_compiler: Mapping[str, Mapping[str, str]]) -> None:
    of_candidate, of_eager = PANELS[label]
    over_candidate, over_eager = OVER.get(label, (None, None))
    if of_eager is not None:
        fullest = max(row, key=lambda curve: len(curve.points))  # a point is missing where a candidate failed
        _draw_line(ax, fullest, of_eager, EAGER, "eager", over_eager)
    for curve in row:
        compiler = curve.comparisons[0].compiler
        if compiler != CONTROL or of_eager is None:
            style = of_compiler[compiler]
            _draw_line(ax, curve, of_candidate, style, compiler_name(compiler), over_candidate)
    x_label = "peak memory, GB" if over_candidate else row[0].axis
    ax.set(xscale="log", yscale="log", xlabel=f"{x_label} (log scale)", ylabel=label)
    values = sorted({value for curve in row for value in curve.points})
    lines: Sequence[Any] = ax.get_lines() if over_candidate else ()
    peaks = [float(at) for line in lines for at in line.get_xdata()]
    ticks: Sequence[float] = sorted({float(f"{end(peaks):.3g}") for end in (min, max)}) if peaks else values
    ax.set_xticks(ticks, [f"{value:,}" for value in ticks])
    ax.minorticks_off()
    light_grid(ax)
    if of_candidate is _speedup:
        ax.axhline(1.0, color="black", linewidth=0.8, zorder=1)
        _draw_crossovers(ax, row, values, of_compiler)
        ratio_ticks(ax.yaxis, ax.get_ylim(), MOST_TICKS)
        ax.legend(fontsize=7, frameon=False)


def _draw_line(
    ax: Axes, curve: Curve, value: Value, style: Mapping[str, Any], label: str, over: Value | None
) -> None:
    """``over``: what a point has on the x axis; None: its place on the curve."""
    places = [(over(c) if over else Typical(value=at), value(c)) for at, c in curve.points.items()]
    known = [(place.value, there) for place, there in places if place is not None and there is not None]
    x, y = [at for at, _ in known], [there.value for _, there in known]
    ax.plot(x, y, label=label, linewidth=1.3, ms=4, **style)
    ends = ((at, there.low, there.high) for at, there in known if over is None)
    band = [(at, low, high) for at, low, high in ends if low is not None and high is not None]
    if band:
        at, low, high = zip(*band, strict=True)
        ax.fill_between(at, low, high, color=style["color"], alpha=0.2, linewidth=0)


def _draw_crossovers(
    ax: Axes, row: Row, values: Sequence[int], of_compiler: Mapping[str, Mapping[str, str]]
) -> None:
    for curve in row:
        color = of_compiler[curve.comparisons[0].compiler]["color"]
        for crossover in curve.crossovers:
            ends = [crossover.low or values[0], crossover.high or values[-1]]
            ax.plot(ends, [1.0, 1.0], color=color, linewidth=4, alpha=0.6, solid_capstyle="butt", zorder=3)
            ax.plot(crossover.at, 1.0, "|", color=color, ms=12, zorder=4)


def _draw_title(ax: Axes, row: Row) -> None:
    first = row[0].comparisons[0]
    record, job = first.record, first.record.job
    title = f"{case_name(row[0].case)}, {job.case.mode.value} {job.dtype}, {first.device}"
    ax.set_title(
        shorten(title, TITLE_WIDTH), loc="left", fontsize=11, fontweight="bold", parse_math=False, pad=16
    )
    note(ax, environment_line(record.environment), (0.0, 1.0), (0, 4), va="bottom", color=GREY)
