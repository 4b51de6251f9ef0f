"""``{suite}_{dtype}_roofline.png``, ``.svg``: rates of single operations and the measured limits.

Left: the roofline (Williams, Waterman, Patterson 2009), FLOP/s over FLOP/byte, below the limits
of memory and processor that the same workers measured. Right: bytes per second, for all operations,
because fused norms and softmax, and copies, have no FLOPs (``harness/metrics/flops.py``).
The number of a row is the number of its point on the left. Bytes are the bytes of eager's operations,
also for compiled points: a point above the roof moved fewer bytes. Only for cases tagged as operations.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any, NamedTuple

from harness.declared import CANDIDATE, EAGER, GIGA, TERA
from runner.analysis.digits import significant
from runner.analysis.results import OPERATION, Result, Summary
from runner.analysis.texts import compiler_name
from runner.names import case_name
from runner.reports.parts import pictures
from runner.reports.parts.sections import Section, compilers, plot_name, sections

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FORMATS = ("png", "svg")
WIDTH_IN, ROW_IN = 11.0, 0.19
MOST_ROWS, LEAST_ROWS = 60, 15
PEAK, BANDWIDTH = "measured_peak_tflop_per_s", "measured_bandwidth_gb_per_s"
MARGIN = 2.5  # factor around the outermost points
Points = Sequence[tuple[float, Mapping[str, float]]]  # the place of an operation -> its rates
Styles = Mapping[str, Mapping[str, Any]]
"""Options of a mark, by compiler; "" is eager."""


class Operation(NamedTuple):
    """One case: eager's rate and each compiler's, of FLOPs (1e12/s) and of bytes (1e9/s)."""

    name: str
    flop_per_byte: float | None
    flops: Mapping[str, float]  # by compiler, "" for eager
    bytes: Mapping[str, float]


def render(summary: Summary) -> Mapping[str, bytes]:
    panels = [(plot_name(s.suite, s.dtype, "_roofline"), s) for s in sections(summary) if operations(s)]
    return pictures.pictures(pictures.by_name(panels, lambda members: draw(members, compilers(summary))))


def operations(section: Section) -> tuple[Operation, ...]:
    """The operations that were timed and that move bytes."""
    timed = [c for c in section.comparisons if OPERATION in c.record.job.case.tags and c.n]
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


def _rates(members: Sequence[Result], rate: str) -> dict[str, float]:
    """Eager's rate under "", and the rates of the candidates that passed parity."""
    eager = next((value for c in members if (value := c.number(EAGER + rate))), None)
    passed = {c.compiler: c.number(CANDIDATE + rate) for c in members if c.record.status.passed}
    return {name: value for name, value in {"": eager, **passed}.items() if value}


def highest(section: Section, limit: str) -> float | None:
    """The highest measurement of a limit of the device, because disturbances can only lower it."""
    return max((value for c in section.comparisons if (value := c.number(limit)) is not None), default=None)


@pictures.plain_style()
def draw(panels: Sequence[Section], order: Sequence[str]) -> Figure:
    """The figure of one suite in one dtype. ``order``: all compilers of the run, which fixes their colors."""
    rows = [operations(panel) for panel in panels]
    heights = [1.4 + ROW_IN * min(MOST_ROWS, max(LEAST_ROWS, len(shown))) for shown in rows]
    eager: dict[str, Any] = {"color": pictures.GREY, "marker": "o", "mfc": "white", "ms": 8}
    of_compiler = {"": eager, **pictures.styles(order)}
    figure = pictures.new_figure(WIDTH_IN, sum(heights))
    grid = figure.subplots(len(panels), 2, squeeze=False, height_ratios=heights, width_ratios=(1.15, 1.0))
    for (left, right), panel, shown in zip(grid, panels, rows, strict=True):
        _draw_roofline(left, panel, shown[:MOST_ROWS], of_compiler)
        _draw_bytes(right, panel, shown[:MOST_ROWS], of_compiler)
        cut = f"the first {MOST_ROWS} of {len(shown)} operations" if len(shown) > MOST_ROWS else ""
        pictures.heading(left, panel.title, panel.environment, cut)
    pictures.legend(figure, grid[:, 1], loc="outside upper left", ncols=6)
    return figure


def _draw_roofline(ax: Axes, panel: Section, shown: Sequence[Operation], of_compiler: Styles) -> None:
    """The points of the operations with FLOPs, under the two limits."""
    ax.set(xscale="log", yscale="log", xlabel="FLOP / byte of eager's operations", ylabel="TFLOP/s")
    points = {n: (o.flop_per_byte, o.flops) for n, o in enumerate(shown, 1) if o.flop_per_byte and o.flops}
    peak, bandwidth = highest(panel, PEAK), highest(panel, BANDWIDTH)
    if not points or peak is None or bandwidth is None:
        why = "no measured limits" if points else "no operation whose FLOPs are counted"
        ax.text(0.5, 0.5, why, transform=ax.transAxes, ha="center", color=pictures.GREY)
        return
    slope = bandwidth * GIGA / TERA
    places = [peak / slope, *(x for x, _ in points.values())]
    low, high = min(places) / MARGIN, max(places) * MARGIN
    ax.plot([low, peak / slope, high], [low * slope, peak, peak], color="black", linewidth=1.2)
    text, above = f"peak measured here: {significant(peak, 3)} TFLOP/s", "offset points"
    ax.annotate(text, (high, peak), (0, 3), textcoords=above, ha="right", fontsize=7)
    for number, (x, flops) in points.items():
        ax.annotate(f"{number}", (x, max(flops.values())), (0, 5), textcoords=above, ha="center", fontsize=7)
    _draw_points(ax, [*points.values()], of_compiler)
    pictures.log_ticks(ax.xaxis)
    pictures.log_ticks(ax.yaxis)


def _draw_bytes(ax: Axes, panel: Section, shown: Sequence[Operation], of_compiler: Styles) -> None:
    """A row for each operation, with its number on the roofline."""
    ax.set(xscale="log", xlabel="GB/s of what eager's operations read and write")
    _draw_points(ax, [(n, operation.bytes) for n, operation in enumerate(shown, 1)], of_compiler, turn=-1)
    names = [f"{pictures.shorten(operation.name, 30)}  {n}" for n, operation in enumerate(shown, 1)]
    ax.set_yticks(range(1, len(names) + 1), names)
    ax.set_ylim(len(names) + 0.6, 0.4)  # the first on top
    ax.tick_params(axis="y", length=0)
    if (bandwidth := highest(panel, BANDWIDTH)) is not None:
        ax.axvline(bandwidth, color="black", linewidth=1.2, zorder=1)
        ax.set_title(f"black line, measured here: {significant(bandwidth, 3)} GB/s", size=7, weight="normal")
    pictures.log_ticks(ax.xaxis)


def _draw_points(ax: Axes, points: Points, of_compiler: Styles, turn: int = 1) -> None:
    """Rates over their places, an operation's joined by a thin line; ``turn`` -1: places over rates."""
    for place, rates in points:
        ends = ([place, place], [min(rates.values()), max(rates.values())])
        ax.plot(*ends[::turn], color="#BBBBBB", linewidth=0.8)
    for compiler, style in of_compiler.items():
        if known := [(place, rates[compiler]) for place, rates in points if compiler in rates]:
            options = {"linewidth": 0, "ms": 5, "label": compiler_name(compiler) or "eager", **style}
            ax.plot(*[*zip(*known, strict=True)][::turn], **options)
