"""Plots of study C: compile time against steady state, and the time of each first call."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from statistics import median
from typing import TYPE_CHECKING

from harness.timing.first_calls import FIRST_CALLS
from runner.reports.parts.axes import COLORS, GREY, SHAPES, new_figure
from runner.reports.parts.pictures import pictures, plain_style
from studies.compile_modes.options import MODES
from studies.compile_modes.results import Outcome, by_title
from studies.ticks import plain_ticks

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    Draw = Callable[[Axes, Sequence[Outcome]], None]

PANEL_IN = (3.7, 3.6)


def compile_against_run(measured: Sequence[Outcome]) -> Mapping[str, bytes]:
    """``compile_against_run.png``, ``.svg``: a panel for each model, a point with interval for each mode."""
    return _panels(
        "compile_against_run.png",
        by_title([o for o in measured if o.timed and o.comparison.compilation_latency_s]),
        _compile_panel,
        "speedup over eager, steady state",
    )


def first_calls(measured: Sequence[Outcome]) -> Mapping[str, bytes]:
    """``first_calls.png``, ``.svg``: seconds of each call before the timed rounds, and of eager's step."""
    groups = by_title([o for o in measured if o.record.first_calls_s])
    return _panels("first_calls.png", groups, _calls_panel, "seconds of the call")


def _panels(
    name: str,
    groups: Mapping[str, Sequence[Outcome]],
    draw: Draw,
    label: str,
) -> Mapping[str, bytes]:
    """A figure with a panel for each group. No figure without groups."""
    if not groups:
        return {}
    with plain_style():
        figure = new_figure(PANEL_IN[0] * len(groups), PANEL_IN[1])
        panels = figure.subplots(1, len(groups), squeeze=False)[0]
        for panel, (title, group) in zip(panels, groups.items(), strict=True):
            draw(panel, group)
            panel.set_title(title, loc="left")
            panel.grid(color="#DDDDDD", linewidth=0.5)
        panels[0].set_ylabel(label)
        shown = [panel.get_legend_handles_labels() for panel in panels]
        once = {text: handle for handles, texts in shown for handle, text in zip(handles, texts, strict=True)}
        columns = min(len(once), 2 * len(groups))  # as many as fit
        figure.legend(
            list(once.values()), list(once), loc="outside lower center", ncols=columns, frameon=False
        )
    return pictures(name, figure)


def _compile_panel(panel: Axes, group: Sequence[Outcome]) -> None:
    panel.axhline(1.0, color=GREY, linewidth=0.8, linestyle="--", label="eager")
    for outcome in group:
        comparison = outcome.comparison
        assert comparison.speedup is not None
        assert comparison.compilation_latency_s is not None
        low, high = comparison.ci_low or comparison.speedup, comparison.ci_high or comparison.speedup
        panel.errorbar(
            [comparison.compilation_latency_s],
            [comparison.speedup],
            yerr=[[comparison.speedup - low], [high - comparison.speedup]],
            fmt=_shape(outcome),
            color=_color(outcome),
            capsize=3,
            label=outcome.mode,
        )
    panel.set_xscale("log")
    panel.margins(y=0.2)
    panel.set_ylim(bottom=max(0.0, panel.get_ylim()[0]))
    plain_ticks(panel, [float(o.comparison.compilation_latency_s or 0) for o in group])
    panel.set_xlabel("compile time, s (cold, timed once)")


def _calls_panel(panel: Axes, group: Sequence[Outcome]) -> None:
    from matplotlib.ticker import MaxNLocator

    for outcome in group:
        calls = outcome.record.first_calls_s
        panel.plot(
            range(1, len(calls) + 1),
            calls,
            color=_color(outcome),
            marker=_shape(outcome),
            markersize=4,
            linewidth=1.0,
            label=outcome.mode,
        )
    eager = [o.comparison.baseline_ms / 1e3 for o in group if o.comparison.baseline_ms is not None]
    if eager:
        panel.axhline(median(eager), color=GREY, linewidth=0.8, linestyle="--", label="eager, settled")
    panel.axvline(FIRST_CALLS + 0.5, color="#DDDDDD", linewidth=0.8)
    panel.set_yscale("log")
    panel.xaxis.set_major_locator(MaxNLocator(integer=True))
    panel.set_xlabel(f"call; the first {FIRST_CALLS} count as compilation")


def _place(outcome: Outcome) -> int:
    return [*MODES, outcome.mode].index(outcome.mode)


def _color(outcome: Outcome) -> str:
    return COLORS[_place(outcome) % len(COLORS)]


def _shape(outcome: Outcome) -> str:
    return SHAPES[_place(outcome) % len(SHAPES)]
