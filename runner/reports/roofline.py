"""``{suite}_{dtype}_roofline.png``, ``.svg``: rates of single operations and the measured limits.

Left: the roofline (Williams, Waterman, Patterson 2009), FLOP/s over FLOP/byte, below the limits
of memory and processor that the same workers measured. Right: bytes per second, for all operations,
because fused norms and softmax, and copies, have no FLOPs (``harness/metrics/flops.py``).
The number of a row is the number of its point on the left. Bytes are the bytes of eager's operations,
also for compiled points: a point above the roof moved fewer bytes. Only for cases tagged as operations;
report.html has models.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any, NamedTuple

from harness.declared import CANDIDATE, EAGER, GIGA, TERA
from runner.analysis.comparison import OPERATION, Comparison, Summary
from runner.analysis.digits import significant
from runner.analysis.texts import compiler_name
from runner.labels import case_name
from runner.reports.parts.axes import GREY, legend, light_grid, new_figure, note, shortened, styles
from runner.reports.parts.pictures import by_name, plain_style
from runner.reports.parts.sections import Section, compilers, environment_line, plot_name, sections

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure

FORMATS = ("png", "svg")
WIDTH_IN, LEAST_IN, ROW_IN = 11.0, 4.2, 0.19
MOST_ROWS = 60
LABEL_WIDTH = 30
MARGIN = 1.6  # factor around the outermost points; both axes are logarithmic
Styles = Mapping[str, Mapping[str, Any]]
"""Options of a mark, by compiler; "" is eager."""


class Operation(NamedTuple):
    """One case: eager's rate and each compiler's, of FLOPs (1e12/s) and of bytes (1e9/s)."""

    name: str
    flop_per_byte: float | None
    flops: Mapping[str, float]  # by compiler, "" for eager
    bytes: Mapping[str, float]


def render(summary: Summary) -> Mapping[str, bytes]:
    order = compilers(summary)
    panels = [(plot_name(s.suite, s.dtype, "_roofline"), s) for s in sections(summary) if operations(s)]
    return by_name(panels, lambda members: draw(members, order))


def operations(section: Section) -> tuple[Operation, ...]:
    """The operations that were timed and that move bytes."""
    timed = [c for c in section.comparisons if OPERATION in c.record.job.case.tags and c.work is not None]
    groups = (tuple(group) for _, group in groupby(timed, key=lambda c: c.record.job.key))
    shown = (
        Operation(
            case_name(members[0].record.job.case),
            members[0].number("flop_per_byte"),
            _rates(members, "tflop_per_s"),
            _rates(members, "gb_per_s"),
        )
        for members in groups
    )
    return tuple(operation for operation in shown if operation.bytes)


def _rates(members: Sequence[Comparison], rate: str) -> dict[str, float]:
    """Eager's rate under "", and the rates of the candidates that passed parity."""
    eager = next((value for c in members if (value := c.number(EAGER + rate))), None)
    rates = {} if eager is None else {"": eager}
    for comparison in members:
        value = comparison.number(CANDIDATE + rate)
        if value and comparison.record.status.passed:
            rates[comparison.compiler] = value
    return rates


def highest(section: Section, limit: str) -> float | None:
    """The highest measurement of a limit of the device, because disturbances can only lower it."""
    values = (c.number(limit) for c in section.comparisons)
    return max((value for value in values if value is not None), default=None)


def draw(panels: Sequence[Section], order: Sequence[str]) -> Figure:
    """The figure of one suite in one dtype. ``order``: all compilers of the run, which fixes their colors."""
    rows = [operations(panel) for panel in panels]
    heights = [max(LEAST_IN, 1.4 + ROW_IN * min(MOST_ROWS, len(shown))) for shown in rows]
    of_compiler: Styles = {
        "": {"color": GREY, "marker": "o", "mfc": "white", "ms": 6.5, "linewidth": 0, "zorder": 3},
        **{
            name: {**style, "ms": 5.0, "linewidth": 0, "zorder": 4}
            for name, style in styles(order, first_shape=1).items()
        },
    }
    with plain_style():
        figure = new_figure(WIDTH_IN, sum(heights))
        grid = figure.subplots(len(panels), 2, squeeze=False, height_ratios=heights, width_ratios=(1.15, 1.0))
        for (left, right), panel, shown in zip(grid, panels, rows, strict=True):
            bandwidth = highest(panel, "measured_bandwidth_gb_per_s")
            peak = highest(panel, "measured_peak_tflop_per_s")
            _draw_roofline(left, shown[:MOST_ROWS], peak, bandwidth, of_compiler)
            _draw_bytes(right, shown, bandwidth, of_compiler)
            left.set_title(panel.title, loc="left", fontsize=11, fontweight="bold", pad=32, parse_math=False)
            note(left, environment_line(panel.environment), (0.0, 1.0), (0, 21), color=GREY)
    return figure


def _draw_roofline(
    ax: Axes, shown: Sequence[Operation], peak: float | None, bandwidth: float | None, of_compiler: Styles
) -> None:
    """The points of the operations with FLOPs, under the two limits. A line joins an operation's points."""
    ax.set(xlabel="FLOP / byte of eager's operations", ylabel="TFLOP/s")
    points = {n: (o.flop_per_byte, o.flops) for n, o in enumerate(shown, 1) if o.flop_per_byte and o.flops}
    if not points or peak is None or bandwidth is None:
        why = "no measured limits" if points else "no operation whose FLOPs are counted"
        ax.text(0.5, 0.5, why, transform=ax.transAxes, ha="center", color=GREY)
        return
    slope = bandwidth * GIGA / TERA
    places = [x for x, _ in points.values()] + [peak / slope]
    rates = [rate for _, flops in points.values() for rate in flops.values()]
    low, high = min(places) / MARGIN**2, max(places) * MARGIN**2
    ax.plot([low, peak / slope, high], [low * slope, peak, peak], color="black", linewidth=1.2, zorder=2)
    ax.set(xscale="log", yscale="log", xlim=(low, high))
    ax.set_ylim(min([*rates, low * slope]) / MARGIN, max([*rates, peak]) * MARGIN)
    for number, (x, flops) in points.items():
        ax.plot([x, x], [min(flops.values()), max(flops.values())], color="#BBBBBB", linewidth=0.8, zorder=2)
        for compiler, rate in flops.items():
            ax.plot(x, rate, **of_compiler[compiler])
        note(ax, f"{number}", (x, max(flops.values())), (0, 5), "data", ha="center")
    text = f"peak measured here: {significant(peak, 3)} TFLOP/s"
    note(ax, text, (0.99, peak), (0, 3), ("axes fraction", "data"), ha="right")
    _plain_numbers(ax, ax.xaxis, ax.yaxis)
    drawn = {compiler for operation in shown for compiler in operation.bytes}
    names = {compiler: compiler_name(compiler) or "eager" for compiler in of_compiler if compiler in drawn}
    legend(ax, [(name, of_compiler[compiler]) for compiler, name in names.items()])


def _draw_bytes(ax: Axes, shown: Sequence[Operation], bandwidth: float | None, of_compiler: Styles) -> None:
    """A row for each operation, with its number on the roofline."""
    ax.set_xscale("log")
    rows = shown[:MOST_ROWS]
    for place, operation in enumerate(rows):
        rates = operation.bytes.values()
        ax.plot([min(rates), max(rates)], [place, place], color="#BBBBBB", linewidth=0.8, zorder=2)
        for compiler, rate in operation.bytes.items():
            ax.plot(rate, place, **of_compiler[compiler])
    short = shortened((operation.name for operation in rows), LABEL_WIDTH)
    names = [f"{short[operation.name]}  {n}" for n, operation in enumerate(rows, 1)]
    ax.set_yticks(range(len(names)), names, parse_math=False)
    ax.set_ylim(len(names) - 0.4, -0.6)  # the first on top
    ax.tick_params(axis="y", length=0)
    ax.set_xlabel("GB/s of what eager's operations read and write")
    if bandwidth is not None:
        ax.axvline(bandwidth, color="black", linewidth=1.2, zorder=1)
        text = f"measured here: {significant(bandwidth, 3)} GB/s"
        note(ax, text, (bandwidth, 1.0), (0, 3), ("data", "axes fraction"), ha="center")
    if more := len(shown[MOST_ROWS:]):
        ax.set_title(f"the first {MOST_ROWS}; {more} more", fontsize=7, color=GREY, pad=14)
    _plain_numbers(ax, ax.xaxis)


def _plain_numbers(ax: Axes, *axes: Axis) -> None:
    """Powers of ten as plain numbers on the logarithmic ``axes``."""
    from matplotlib.ticker import FuncFormatter

    for axis in axes:
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    light_grid(ax)
