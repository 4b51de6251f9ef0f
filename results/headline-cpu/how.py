"""The picture of docs/RESULTS.md: sorted speedups, from the runs of ``make headline``.

    python results/headline-cpu/how.py results/headline-cpu docs/images/headline.svg

A point is a model with its interval. Only models that pass parity are shown. Where the runs have several
processors, the points of all but the most frequent are hollow.

Kept beside the results that it made. No check covers it: it may need the program of its day (2026-11-23).
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import matplotlib as mpl

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))


from docs.records import JUDGED, judged_again, processor, records_below  # noqa: E402
from runner.analysis.comparison import Comparison  # noqa: E402
from runner.analysis.derive import summarize  # noqa: E402
from runner.reports.parts.axes import (  # noqa: E402
    COLORS,
    light_grid,
    new_figure,
    note,
    ratio_ticks,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

NAMED = (0.87, 1.15)  # the first and last model of a curve is named below and above these speedups
LINE = 9.0  # points from one name to the next
HEIGHT = 270.0  # points, of a panel
ENDS = (0.6, 3.5)


class Named(NamedTuple):
    """A model whose name is shown, to the right of its point or to the left."""

    x: float
    speedup: float
    name: str
    color: str
    right: bool


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("runs", type=Path)
    parser.add_argument("picture", type=Path)
    parser.add_argument("--compiler", default="inductor")
    options = parser.parse_args()
    comparisons = summarize(list(judged_again(records_below(options.runs), records_below(JUDGED)))).comparisons
    shown = [
        c for c in comparisons if c.compiler == options.compiler and c.record.status.passed and c.speedup
    ]
    modes = sorted({c.record.job.case.mode for c in shown})
    suites = sorted({c.record.job.case.suite for c in shown})
    filled = max(devices := [c.device for c in shown], key=devices.count)
    mpl.rcParams["svg.hashsalt"] = "torchduet"  # the same records give the same file
    figure = new_figure(11.0, 4.5)
    for ax, mode in zip(figure.subplots(1, len(modes), sharey=True, squeeze=False)[0], modes, strict=True):
        members = [c for c in shown if c.record.job.case.mode is mode]
        named: list[Named] = []
        for number, suite in enumerate(suites):
            named += draw(ax, suite, [c for c in members if c.record.job.case.suite == suite], number, filled)
        name_ends(ax, named)
        ax.axhline(1.0, color="black", linewidth=0.8)
        ax.set_yscale("log")
        ax.set_ylim(*ENDS)
        ratio_ticks(ax.yaxis, ENDS, 9)
        light_grid(ax, "y")
        hollow = sorted({processor(c.device) for c in members if c.device != filled})
        title = f"{mode.value}: {len(members)} models" + (f" (hollow: {', '.join(hollow)})" if hollow else "")
        ax.set_title(title, loc="left", fontsize=10)
        ax.set_xlabel("share of the suite's models, in the order of their speedups, %")
        ax.legend(loc="upper left", frameon=False, fontsize=8)
    figure.axes[0].set_ylabel(f"speedup of {options.compiler} [95 % interval]")
    figure.savefig(options.picture, metadata={"Date": None})


def draw(ax: Axes, suite: str, members: Sequence[Comparison], number: int, filled: str) -> list[Named]:
    """The curve of the suite with this number. Points of another device than ``filled`` are hollow."""
    color = COLORS[number % len(COLORS)]
    ordered = sorted(members, key=lambda c: c.speedup or 0.0)
    xs = [100 * (n + 0.5) / len(ordered) for n in range(len(ordered))]
    values = [c.speedup or 1.0 for c in ordered]
    low = [v - (c.ci_low or v) for v, c in zip(values, ordered, strict=True)]
    high = [(c.ci_high or v) - v for v, c in zip(values, ordered, strict=True)]
    faces = [color if c.device == filled else "white" for c in ordered]
    ax.errorbar(xs, values, (low, high), fmt="none", ecolor=color, elinewidth=0.7)
    ax.scatter(xs, values, s=9, color=faces, edgecolors=color, linewidths=0.7, zorder=3)
    ax.scatter([], [], s=9, color=color, label=f"{suite}, n {len(ordered)}")
    names = [c.record.job.case.name for c in ordered]
    named = []
    if values and values[0] < NAMED[0]:
        named.append(Named(xs[0], values[0], names[0], color, right=True))
    if values and values[-1] > NAMED[1]:
        named.append(Named(xs[-1], values[-1], names[-1], color, right=False))
    return named


def name_ends(ax: Axes, named: Sequence[Named]) -> None:
    """The names from below to above, each at its point or, if another is there, on the next line."""
    for right in (True, False):
        free = -math.inf
        for one in sorted((n for n in named if n.right is right), key=lambda n: n.speedup):
            point = HEIGHT * math.log(one.speedup / ENDS[0]) / math.log(ENDS[1] / ENDS[0])
            place = max(point, free)
            free = place + LINE
            offset = (5.0 if right else -5.0, place - point)
            side = "left" if right else "right"
            note(ax, one.name, (one.x, one.speedup), offset, "data", color=one.color, ha=side)


if __name__ == "__main__":
    main()
