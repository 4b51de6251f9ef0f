"""``{suite}_{dtype}_roofline.png``, ``.svg``: rates of single operations and the measured limits.

Left: the roofline (Williams, Waterman, Patterson 2009), FLOP/s over FLOP/byte, below the limits
of memory and processor that the same workers measured. Right: bytes per second, for all operations,
because torch counts FLOPs of matrix products and attention only. The number of a row is the number
of its point on the left. Bytes are the bytes of eager's operations, also for compiled points: a
point above the roof moved fewer bytes. Only for cases tagged as operations; report.html has models.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Any

from runner.analysis.comparison import OPERATION, Comparison, Summary
from runner.analysis.digits import significant
from runner.labels import case_name
from runner.reports.parts.axes import GREY, legend, light_grid, new_figure, note, shortened, styles
from runner.reports.parts.pictures import by_name, plain_style
from runner.reports.parts.sections import (
    Section,
    compiler_name,
    compilers,
    environment_line,
    plot_name,
    sections,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FORMATS = ("png", "svg")
WIDTH_IN, LEAST_IN, ROW_IN = 11.0, 4.2, 0.19
MOST_ROWS = 60
LABEL_WIDTH = 30
MARGIN = 1.6  # factor around the outermost points; both axes are logarithmic
GIGA_IN_TERA = 1e-3
Styles = Mapping[str, Mapping[str, str]]
"""By compiler; "" is eager."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """One case: eager's rate and each compiler's, of FLOPs (1e12/s) and of bytes (1e9/s)."""

    name: str
    flop_per_byte: float | None
    flops: Mapping[str, float]  # by compiler, "" for eager
    bytes: Mapping[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """A panel: the operations of a section, and the highest limits that its workers measured."""

    title: str
    facts: str
    compilers: tuple[str, ...]
    operations: tuple[Operation, ...]
    left_out: int
    peak_tflop_per_s: float | None
    bandwidth_gb_per_s: float | None


def render(summary: Summary) -> Mapping[str, bytes]:
    order = compilers(summary)
    drawn = [(plot_name(s.suite, s.dtype, "_roofline"), picture_of(s)) for s in sections(summary)]
    panels = [(name, picture) for name, picture in drawn if picture.operations]
    return by_name(panels, lambda members: draw(members, order))


def picture_of(section: Section) -> Picture:
    """The panel of a section; without operations if none of them moves bytes."""
    timed = [c for c in section.comparisons if OPERATION in c.record.job.case.tags and c.work is not None]
    operations = [operation for operation in _operations(timed) if operation.bytes]
    return Picture(
        title=section.title,
        facts=environment_line(section.environment),
        compilers=tuple(dict.fromkeys(c.compiler for c in timed)),
        operations=tuple(operations[:MOST_ROWS]),
        left_out=len(operations[MOST_ROWS:]),
        peak_tflop_per_s=_highest(timed, "measured_peak_tflop_per_s"),
        bandwidth_gb_per_s=_highest(timed, "measured_bandwidth_gb_per_s"),
    )


def _highest(comparisons: Sequence[Comparison], limit: str) -> float | None:
    """The highest measurement, because disturbances can only lower it."""
    return max((value for c in comparisons if (value := c.number(limit)) is not None), default=None)


def _operations(comparisons: Sequence[Comparison]) -> Iterator[Operation]:
    for _, group in groupby(comparisons, key=lambda c: c.record.job.key):
        members = tuple(group)
        yield Operation(
            name=case_name(members[0].record.job.case),
            flop_per_byte=members[0].number("flop_per_byte"),
            flops=_rates(members, "baseline_tflop_per_s", "candidate_tflop_per_s"),
            bytes=_rates(members, "baseline_gb_per_s", "candidate_gb_per_s"),
        )


def _rates(members: Sequence[Comparison], eager: str, candidate: str) -> dict[str, float]:
    """Eager's rate under "", and the rates of the candidates that passed parity."""
    rates: dict[str, float] = {}
    for comparison in members:
        before, after = comparison.number(eager), comparison.number(candidate)
        if before:
            rates.setdefault("", before)
        if after and comparison.record.status.passed:
            rates[comparison.compiler] = after
    return rates


def draw(panels: Sequence[Picture], order: Sequence[str]) -> Figure:
    """The figure of one suite in one dtype. ``order``: all compilers of the run, which fixes their colors."""
    heights = [max(LEAST_IN, 1.4 + ROW_IN * len(panel.operations)) for panel in panels]
    of_compiler = {"": {"color": GREY, "marker": "o"}, **styles(order, first_shape=1)}  # eager: a gray ring
    with plain_style():
        figure = new_figure(WIDTH_IN, sum(heights))
        grid = figure.subplots(len(panels), 2, squeeze=False, height_ratios=heights, width_ratios=(1.15, 1.0))
        for (left, right), panel in zip(grid, panels, strict=True):
            _draw_roofline(left, panel, of_compiler)
            _draw_bytes(right, panel, of_compiler)
            left.set_title(panel.title, loc="left", fontsize=11, fontweight="bold", pad=32, parse_math=False)
            note(left, panel.facts, (0.0, 1.0), (0, 21), color=GREY)
    return figure


def _mark(ax: Axes, x: float, y: float, compiler: str, of_compiler: Styles) -> None:
    style: dict[str, Any] = {**of_compiler[compiler], "linewidth": 0, "zorder": 4 if compiler else 3}
    ax.plot(x, y, mfc=_face(compiler, of_compiler), ms=5.0 if compiler else 6.5, **style)


def _face(compiler: str, of_compiler: Styles) -> str:
    return of_compiler[compiler]["color"] if compiler else "white"


def _draw_roofline(ax: Axes, panel: Picture, of_compiler: Styles) -> None:
    numbered = enumerate(panel.operations, 1)
    drawn = [
        (place, operation) for place, operation in numbered if operation.flop_per_byte and operation.flops
    ]
    peak, bandwidth = panel.peak_tflop_per_s, panel.bandwidth_gb_per_s
    ax.set_xscale("log")
    ax.set_yscale("log")
    ax.set_xlabel("FLOP / byte of eager's operations")
    ax.set_ylabel("TFLOP/s")
    places = [operation.flop_per_byte for _, operation in drawn if operation.flop_per_byte]
    heights = [rate for _, operation in drawn for rate in operation.flops.values()]
    if not drawn or peak is None or bandwidth is None:
        why = "no measured limits" if drawn else "no operation whose FLOPs are counted"
        ax.text(0.5, 0.5, why, transform=ax.transAxes, ha="center", color=GREY)
        return
    slope = bandwidth * GIGA_IN_TERA
    ridge = peak / slope
    low, high = min([*places, ridge]) / MARGIN**2, max([*places, ridge]) * MARGIN**2
    ax.plot([low, ridge, high], [low * slope, peak, peak], color="black", linewidth=1.2, zorder=2)
    ax.set_xlim(low, high)
    ax.set_ylim(min([*heights, low * slope]) / MARGIN, max([*heights, peak]) * MARGIN)
    for place, operation in drawn:
        assert operation.flop_per_byte is not None
        rates = sorted(operation.flops.values())
        ax.plot(
            [operation.flop_per_byte] * 2, [rates[0], rates[-1]], color="#BBBBBB", linewidth=0.8, zorder=2
        )
        for compiler, rate in operation.flops.items():
            _mark(ax, operation.flop_per_byte, rate, compiler, of_compiler)
        note(ax, f"{place}", (operation.flop_per_byte, rates[-1]), (0, 5), "data", ha="center")
    text = f"peak measured here: {significant(peak, 3)} TFLOP/s"
    note(ax, text, (0.99, peak), (0, 3), ("axes fraction", "data"), ha="right")
    _axis(ax, "x", "y")
    legend(
        ax,
        [
            (
                compiler_name(compiler) if compiler else "eager",
                {**of_compiler[compiler], "linewidth": 0, "ms": 5, "mfc": _face(compiler, of_compiler)},
            )
            for compiler in ("", *panel.compilers)
        ],
    )


def _draw_bytes(ax: Axes, panel: Picture, of_compiler: Styles) -> None:
    ax.set_xscale("log")
    for place, operation in enumerate(panel.operations):
        rates = sorted(operation.bytes.values())
        ax.plot([rates[0], rates[-1]], [place, place], color="#BBBBBB", linewidth=0.8, zorder=2)
        for compiler, rate in operation.bytes.items():
            _mark(ax, rate, place, compiler, of_compiler)
    short = shortened((operation.name for operation in panel.operations), LABEL_WIDTH)
    names = [f"{short[operation.name]}  {n}" for n, operation in enumerate(panel.operations, 1)]
    ax.set_yticks(range(len(names)), names, parse_math=False)
    ax.set_ylim(len(names) - 0.4, -0.6)  # the first on top
    ax.tick_params(axis="y", length=0)
    ax.set_xlabel("GB/s of what eager's operations read and write")
    bandwidth = panel.bandwidth_gb_per_s
    if bandwidth is not None:
        ax.axvline(bandwidth, color="black", linewidth=1.2, zorder=1)
        text = f"measured here: {significant(bandwidth, 3)} GB/s"
        note(ax, text, (bandwidth, 1.0), (0, 3), ("data", "axes fraction"), ha="center")
    if panel.left_out:
        ax.set_title(f"the first {MOST_ROWS}; {panel.left_out} more", fontsize=7, color=GREY, pad=14)
    _axis(ax, "x")


def _axis(ax: Axes, *axes: str) -> None:
    """Powers of ten as plain numbers on the logarithmic ``axes``."""
    from matplotlib.ticker import FuncFormatter

    for name in axes:
        getattr(ax, f"{name}axis").set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    light_grid(ax)
