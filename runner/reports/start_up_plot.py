"""``{suite}_{dtype}_start_up.png``, ``.svg``: the start-up race, a panel for each model with ``--start-up``.

Steps done over the seconds since the model was built, both logarithmic: a curve for eager and for each form
of each candidate. Where a curve crosses eager's, it has overtaken it. The right end of a curve is the last
step of the race.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import TYPE_CHECKING

from harness.schema import EAGER_START
from runner.analysis.comparison import StartForm, Summary
from runner.labels import case_name
from runner.reports.parts.axes import GREY, light_grid, new_figure, note, shorten, styles
from runner.reports.parts.pictures import by_name, plain_style
from runner.reports.parts.sections import environment_line, plot_name
from runner.reports.parts.start_up import form_name, overtaking_text

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FORMATS = ("png", "svg")
WIDTH_IN, PANEL_IN = 11.0, 3.0
MOST_MODELS = 12  # of a suite; report.md has all
TITLE_WIDTH = 90
LEGEND = "from: overtakes eager after so many steps"

Forms = tuple[StartForm, ...]


def render(summary: Summary) -> Mapping[str, bytes]:
    labels = summary.labels
    names = tuple(dict.fromkeys(map(form_name, summary.start_forms)))
    panels = []
    for _, forms in groupby(summary.start_forms, key=lambda form: form.comparison.record.job.key):
        members = tuple(forms)
        job = members[0].comparison.record.job
        panels.append((plot_name(labels[job.case.suite], job.dtype, "_start_up"), members))
    return by_name(panels, lambda members: draw(members[:MOST_MODELS], names))


def draw(panels: Sequence[Forms], names: Sequence[str]) -> Figure:
    """``names``: of all curves of the run, which fixes their colors."""
    of_name = {**styles([name for name in names if name != EAGER_START]), EAGER_START: {"color": "black"}}
    with plain_style():
        figure = new_figure(WIDTH_IN, PANEL_IN * len(panels))
        for ax, forms in zip(figure.subplots(len(panels), 1, squeeze=False)[:, 0], panels, strict=True):
            _draw_panel(ax, forms, of_name)
    return figure


def _draw_panel(ax: Axes, forms: Forms, of_name: Mapping[str, Mapping[str, str]]) -> None:
    ax.set(xscale="log", yscale="log", xlabel="seconds since the model was built (log scale)")
    ax.set_ylabel("steps done")
    curves: dict[str, StartForm] = {}
    for form in forms:
        curves.setdefault(form_name(form), form)  # every candidate of the job has eager
    for name, form in curves.items():
        label = f"{name}: {overtaking_text(form)}" if form.overtaking is not None else name
        steps = range(1, len(form.curve) + 1)
        ax.plot(form.curve, steps, color=of_name[name]["color"], linewidth=1.5, label=label)
    record = forms[0].comparison.record
    case = record.job.case
    title = f"{case_name(case)}, {case.mode.value} {record.job.dtype}, n = {min(form.n for form in forms)}"
    ax.set_title(
        shorten(title, TITLE_WIDTH), loc="left", fontsize=11, fontweight="bold", parse_math=False, pad=16
    )
    note(ax, environment_line(record.environment), (0.0, 1.0), (0, 4), va="bottom", color=GREY)
    light_grid(ax)
    ax.legend(fontsize=7, loc="center left", bbox_to_anchor=(1.0, 0.5), frameon=False, title=LEGEND)
