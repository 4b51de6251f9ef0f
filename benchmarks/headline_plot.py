"""The picture of docs/RESULTS.md: sorted speedups, from the runs of ``benchmarks/headline.py``.

    python benchmarks/headline_plot.py results/headline-cpu docs/images/headline.svg

A point is a model with its interval. Only models that pass parity are shown.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import matplotlib as mpl

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks.common import new_parser  # noqa: E402 - nothing is installed
from benchmarks.headline_tables import records_below, unique  # noqa: E402
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
LINES = (2.0, -6.0, -11.0)  # points above a model: its name, by suite, so that the names do not overlap
ENDS = (0.63, 3.5)


def main() -> None:
    parser = new_parser(__doc__)
    parser.add_argument("runs", type=Path)
    parser.add_argument("picture", type=Path)
    parser.add_argument("--compiler", default="inductor")
    options = parser.parse_args()
    comparisons = summarize(list(unique(records_below(options.runs)))).comparisons
    shown = [
        c for c in comparisons if c.compiler == options.compiler and c.record.status.passed and c.speedup
    ]
    modes = sorted({c.record.job.case.mode for c in shown})
    suites = sorted({c.record.job.case.suite for c in shown})
    mpl.rcParams["svg.hashsalt"] = "torchduet"  # the same records give the same file
    figure = new_figure(11.0, 4.5)
    for ax, mode in zip(figure.subplots(1, len(modes), sharey=True, squeeze=False)[0], modes, strict=True):
        members = [c for c in shown if c.record.job.case.mode is mode]
        for number, suite in enumerate(suites):
            draw(ax, suite, [c for c in members if c.record.job.case.suite == suite], number)
        ax.axhline(1.0, color="black", linewidth=0.8)
        ax.set_yscale("log")
        ax.set_ylim(*ENDS)
        ratio_ticks(ax.yaxis, ENDS, 9)
        light_grid(ax, "y")
        ax.set_title(f"{mode.value}: {len(members)} models", loc="left", fontsize=10)
        ax.set_xlabel("share of the suite's models, in the order of their speedups, %")
        ax.legend(loc="upper left", frameon=False, fontsize=8)
    figure.axes[0].set_ylabel(f"speedup of {options.compiler} [95 % interval]")
    figure.savefig(options.picture, metadata={"Date": None})


def draw(ax: Axes, suite: str, members: Sequence[Comparison], number: int) -> None:
    """The curve of the suite with this number."""
    color = COLORS[number % len(COLORS)]
    ordered = sorted(members, key=lambda c: c.speedup or 0.0)
    xs = [100 * (n + 0.5) / len(ordered) for n in range(len(ordered))]
    values = [c.speedup or 1.0 for c in ordered]
    low = [v - (c.ci_low or v) for v, c in zip(values, ordered, strict=True)]
    high = [(c.ci_high or v) - v for v, c in zip(values, ordered, strict=True)]
    label = f"{suite}, n {len(ordered)}"
    ax.errorbar(xs, values, (low, high), fmt="o", ms=3, color=color, elinewidth=0.7, label=label)
    for n, first in ((0, True), (len(ordered) - 1, False)):
        if (values[n] < NAMED[0]) if first else (values[n] > NAMED[1]):
            offset = (5.0, LINES[number % len(LINES)]) if first else (-5.0, 0.0)
            name, side = ordered[n].record.job.case.name, "left" if first else "right"
            note(ax, name, (xs[n], values[n]), offset, "data", color=color, ha=side)


if __name__ == "__main__":
    main()
