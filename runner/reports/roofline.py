"""``{suite}_{dtype}_roofline.png``, ``.svg``: what single operations reach of what was measured.

On the left the roofline (Williams, Waterman, Patterson 2009): FLOP/s over FLOPs for
each byte, under the memory's and the processor's limit as measured by the same
workers. On the right bytes per second, where most operations belong: torch's counter
knows FLOPs of products and attention only. A row's number is its point's on the left.
Bytes are those of eager's operations, for compiled points too: one above the roof
has moved fewer. Drawn for cases tagged as operations; report.html has models.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING

from runner.comparison import OPERATION, Comparison, Summary, Work
from runner.digits import significant
from runner.labels import case_name
from runner.reports._fit import shorten
from runner.reports._pictures import ABOVE, by_name, plain_style
from runner.reports._sections import Section, compiler_name, compilers, environment_line, plot_name, sections
from runner.reports.speedup_plot import COLOURS, GREY, SHAPES

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FORMATS = ("png", "svg")
WIDTH_IN, LEAST_IN, ROW_IN = 11.0, 4.2, 0.19
MOST_ROWS = 60
LABEL_WIDTH = 30
MARGIN = 1.6  # round the outermost points, as a factor: both axes are logarithmic
GIGA_IN_TERA = 1e-3


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
    return by_name(panels, lambda found: draw(found, order))


def picture_of(section: Section) -> Picture:
    """What there is to draw of a section; nothing where no operation of it moves bytes."""
    mine = [c for c in section.comparisons if OPERATION in c.record.job.case.tags and c.work is not None]
    found = [one for one in _operations(mine) if one.bytes]
    return Picture(
        title=section.title,
        facts=environment_line(section.environment),
        compilers=tuple(dict.fromkeys(c.compiler for c in mine)),
        operations=tuple(found[:MOST_ROWS]),
        left_out=len(found[MOST_ROWS:]),
        peak_tflop_per_s=_highest(mine, lambda w: w.measured_peak_tflop_per_s),
        bandwidth_gb_per_s=_highest(mine, lambda w: w.measured_bandwidth_gb_per_s),
    )


Rate = Callable[[Work], float | None]


def _highest(comparisons: Sequence[Comparison], limit: Rate) -> float | None:
    """Nothing makes a device faster than it is, so the best of all measurements is the nearest."""
    works = [c.work for c in comparisons if c.work is not None]
    return max((found for work in works if (found := limit(work)) is not None), default=None)


def _operations(comparisons: Sequence[Comparison]) -> Iterator[Operation]:
    for _, group in groupby(comparisons, key=lambda c: c.record.job.key):
        members = tuple(group)
        work = members[0].work
        assert work is not None
        yield Operation(
            name=case_name(members[0].record.job.case),
            flop_per_byte=work.flop_per_byte,
            flops=_rates(members, lambda w: w.baseline_tflop_per_s, lambda w: w.candidate_tflop_per_s),
            bytes=_rates(members, lambda w: w.baseline_gb_per_s, lambda w: w.candidate_gb_per_s),
        )


def _rates(members: Sequence[Comparison], eager: Rate, candidate: Rate) -> dict[str, float]:
    """Eager's rate under "", and those of the candidates that computed what eager does."""
    rates: dict[str, float] = {}
    for comparison in members:
        assert comparison.work is not None
        before, after = eager(comparison.work), candidate(comparison.work)
        if before:
            rates.setdefault("", before)
        if after and comparison.record.status.passed:
            rates[comparison.compiler] = after
    return rates


def draw(panels: Sequence[Picture], order: Sequence[str]) -> Figure:
    """The figure of one suite in one dtype. ``order``: all compilers of the run, so that colours keep."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    heights = [max(LEAST_IN, 1.4 + ROW_IN * len(panel.operations)) for panel in panels]
    with plain_style():
        figure = Figure(figsize=(WIDTH_IN, sum(heights)), layout="constrained")
        FigureCanvasAgg(figure)
        grid = figure.subplots(len(panels), 2, squeeze=False, height_ratios=heights, width_ratios=(1.15, 1.0))
        for (left, right), panel in zip(grid, panels, strict=True):
            styles = _styles(order)
            _draw_roofline(left, panel, styles)
            _draw_bytes(right, panel, styles)
            left.set_title(panel.title, loc="left", fontsize=11, fontweight="bold", pad=32, parse_math=False)
            left.annotate(
                panel.facts,
                xy=(0.0, 1.0),
                xycoords="axes fraction",
                xytext=(0, 21),
                textcoords="offset points",
                fontsize=7,
                color=GREY,
                parse_math=False,
            )
    return figure


def _styles(order: Sequence[str]) -> dict[str, tuple[str, str]]:
    """Colour and shape by compiler. Eager is a grey ring."""
    return {
        "": (GREY, "o"),
        **{c: (COLOURS[i % len(COLOURS)], SHAPES[(i + 1) % len(SHAPES)]) for i, c in enumerate(order)},
    }


def _mark(ax: Axes, x: float, y: float, compiler: str, styles: Mapping[str, tuple[str, str]]) -> None:
    colour, shape = styles[compiler]
    face = colour if compiler else "white"
    ax.plot(x, y, shape, color=colour, mfc=face, ms=5.0 if compiler else 6.5, zorder=4 if compiler else 3)


def _draw_roofline(ax: Axes, panel: Picture, styles: Mapping[str, tuple[str, str]]) -> None:
    numbered = enumerate(panel.operations, 1)
    drawn = [(place, one) for place, one in numbered if one.flop_per_byte and one.flops]
    peak, bandwidth = panel.peak_tflop_per_s, panel.bandwidth_gb_per_s
    ax.set_xscale("log")
    ax.set_yscale("log")
    ax.set_xlabel("FLOP / byte of eager's operations")
    ax.set_ylabel("TFLOP/s")
    places = [one.flop_per_byte for _, one in drawn if one.flop_per_byte]
    heights = [rate for _, one in drawn for rate in one.flops.values()]
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
    for place, one in drawn:
        assert one.flop_per_byte is not None
        rates = sorted(one.flops.values())
        ax.plot([one.flop_per_byte] * 2, [rates[0], rates[-1]], color="#BBBBBB", linewidth=0.8, zorder=2)
        for compiler, rate in one.flops.items():
            _mark(ax, one.flop_per_byte, rate, compiler, styles)
        ax.annotate(
            f"{place}",
            xy=(one.flop_per_byte, rates[-1]),
            xytext=(0, 5),
            textcoords="offset points",
            ha="center",
            fontsize=7,
        )
    _limit(ax, f"peak measured here: {significant(peak, 3)} TFLOP/s", (0.99, peak), (0, 3))
    _axis(ax, "x", "y")
    _legend(ax, panel, styles)


def _limit(ax: Axes, text: str, where: tuple[float, float], offset: tuple[int, int]) -> None:
    ax.annotate(
        text,
        xy=where,
        xycoords=("axes fraction", "data"),
        xytext=offset,
        textcoords="offset points",
        ha="right",
        fontsize=7,
    )


def _draw_bytes(ax: Axes, panel: Picture, styles: Mapping[str, tuple[str, str]]) -> None:
    ax.set_xscale("log")
    for place, one in enumerate(panel.operations):
        rates = sorted(one.bytes.values())
        ax.plot([rates[0], rates[-1]], [place, place], color="#BBBBBB", linewidth=0.8, zorder=2)
        for compiler, rate in one.bytes.items():
            _mark(ax, rate, place, compiler, styles)
    names = [f"{shorten(one.name, LABEL_WIDTH)}  {n}" for n, one in enumerate(panel.operations, 1)]
    ax.set_yticks(range(len(names)), names, parse_math=False)
    ax.set_ylim(len(names) - 0.4, -0.6)  # the first on top
    ax.tick_params(axis="y", length=0)
    ax.set_xlabel("GB/s of what eager's operations read and write")
    bandwidth = panel.bandwidth_gb_per_s
    if bandwidth is not None:
        ax.axvline(bandwidth, color="black", linewidth=1.2, zorder=1)
        ax.annotate(
            f"measured here: {significant(bandwidth, 3)} GB/s",
            xy=(bandwidth, 1.0),
            xycoords=("data", "axes fraction"),
            xytext=(0, 3),
            textcoords="offset points",
            ha="center",
            fontsize=7,
        )
    if panel.left_out:
        ax.set_title(f"the first {MOST_ROWS}; {panel.left_out} more", fontsize=7, color=GREY, pad=14)
    _axis(ax, "x")


def _axis(ax: Axes, *axes: str) -> None:
    """Powers of ten as plain numbers on the logarithmic ``axes``."""
    from matplotlib.ticker import FuncFormatter

    for name in axes:
        getattr(ax, f"{name}axis").set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    ax.grid(which="major", color="#DDDDDD", linewidth=0.5, zorder=0)
    ax.set_axisbelow(True)
    for side in ("top", "right"):
        ax.spines[side].set_visible(False)


def _legend(ax: Axes, panel: Picture, styles: Mapping[str, tuple[str, str]]) -> None:
    from matplotlib.lines import Line2D

    handles = []
    for compiler in ("", *panel.compilers):
        colour, shape = styles[compiler]
        label = compiler_name(compiler) if compiler else "eager"
        face = colour if compiler else "white"
        handles.append(Line2D([], [], label=label, linewidth=0, ms=5, marker=shape, color=colour, mfc=face))
    ax.legend(handles=handles, ncols=len(handles), fontsize=8, **ABOVE)
