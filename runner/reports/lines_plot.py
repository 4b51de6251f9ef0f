"""Lines over an axis, a row of panels for each model: the curves of ``--sweep``, the races of ``--start-up``.

``{suite}_{dtype}_curves.png``, ``.svg``: speedup, time of a step, compilation and peak memory over the axis,
and the time of a step over its peak memory; bands are 95 % intervals. ``{suite}_{dtype}_start_up.png``,
``.svg``: steps done over the seconds since the model was built; a curve above eager's has overtaken it.
``{suite}_{dtype}_fast_p.png``, ``.svg``: the share of models that are right and at least p times as fast.
``{suite}_{dtype}_trajectories.png``, ``.svg``: distance of the loss from eager's over the steps of training.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any, NamedTuple

from harness.schema import EAGER_START
from runner.analysis.results import CONTROL, Curve, Estimate, Result, Summary, single
from runner.analysis.sweep import median_ms
from runner.analysis.texts import compiler_name
from runner.analysis.verdicts.trajectory import NOISE, SEED, curves_of_loss, judged, text
from runner.names import case_name
from runner.reports.parts import pictures
from runner.reports.parts.averages import fast, fast_plot
from runner.reports.parts.curves import curve_plot
from runner.reports.parts.sections import compilers, plot_name
from runner.reports.parts.start_up import form_name, overtaking_text
from runner.reports.parts.trajectory import TRAJECTORIES, trajectory_plot

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FORMATS = ("png", "svg")
WIDTH_IN, PANEL_IN, ROW_IN = 11.0, 3.4, 3.0
MOST_ROWS = 12  # of a suite; report.md has all
MANY = 50  # points of a line, which has markers at some of them
EAGER: Mapping[str, Any] = {"color": "black", "marker": "o"}
OTHERS: Mapping[str, Mapping[str, Any]] = {
    NOISE: {"color": pictures.GREY, "marker": ""},
    SEED: {"color": "black", "marker": "", "linestyle": "--"},
}
SPEEDUP, STEP, COMPILATION = "speedup over eager", "step (ms)", "compilation (s)"
PEAK, SHARE = "peak memory (GB)", "share of models"
MEASURES = (SPEEDUP, STEP, COMPILATION, PEAK)
CANDIDATE, BASELINE = 0, 1
Styles = Mapping[str, Mapping[str, Any]]
Line = tuple[str, Mapping[str, Any], Sequence[tuple[float, Estimate]]]
"""The label, the style and the points; their intervals are a band."""


class Panel(NamedTuple):
    x: str
    y: str
    lines: Sequence[Line]
    places: Sequence[float] = ()  # of ticks


class Strip(NamedTuple):
    """The panels of a model, beside each other."""

    title: str
    first: Result  # its environment is that of all
    panels: Sequence[Panel]
    legend: str = ""


def render(summary: Summary) -> Mapping[str, bytes]:
    strips = [*sweeps(summary), *races(summary), *shares(summary), *trajectories(summary)]
    return pictures.pictures(pictures.by_name(strips, draw))


def svgs(strips: Iterable[tuple[str, Strip]]) -> tuple[bytes, ...]:
    """Pictures in report.html."""
    return tuple(map(pictures.svg, pictures.by_name(strips, draw).values()))


@pictures.plain_style()
def draw(rows: Sequence[Strip]) -> Figure:
    rows, columns = rows[:MOST_ROWS], len(rows[0].panels)
    figure = pictures.new_figure(max(WIDTH_IN, PANEL_IN * columns), ROW_IN * len(rows))
    for axes, row in zip(figure.subplots(len(rows), columns, squeeze=False), rows, strict=True):
        for ax, panel in zip(axes, row.panels, strict=True):
            _draw_panel(ax, panel)
        pictures.heading(axes[0], row.title, row.first.record.environment)
        pictures.legend(axes[-1], axes, loc="center left", bbox_to_anchor=(1.0, 0.5), title=row.legend)
    return figure


def _draw_panel(ax: Axes, panel: Panel) -> None:
    for label, style, points in panel.lines:
        x, y = [x for x, _ in points], [there.factor for _, there in points]
        look: dict[str, Any] = {"drawstyle": "steps-pre"} if panel.y == SHARE else {}
        look["markevery"] = 0.1 if len(x) > MANY else None
        ax.plot(x, y, label=label, linewidth=1.3, ms=4, **style, **look)
        low, high = ([getattr(there, end) or there.factor for _, there in points] for end in ("low", "high"))
        ax.fill_between(x, low, high, color=style["color"], alpha=0.2, linewidth=0)
    ax.set(xscale="log", yscale="log", xlabel=f"{panel.x} (log scale)", ylabel=panel.y)
    if panel.y == SPEEDUP:
        ax.axhline(1.0, color="black", linewidth=0.8, zorder=1)
    if panel.y == SHARE:
        ax.set(yscale="linear", ylim=(0, 1.02))
    else:
        pictures.log_ticks(ax.yaxis, "x" if panel.y == SPEEDUP else "")
    pictures.log_ticks(ax.xaxis)
    if panel.places:
        ax.set_xticks(panel.places)


def sweeps(summary: Summary) -> Iterator[tuple[str, Strip]]:
    """The file of the curves of each model, and its panels."""
    of_compiler = pictures.styles(compilers(summary))
    for _, family in groupby(summary.curves, key=lambda curve: curve.family):
        curves = tuple(family)
        places = sorted({value for curve in curves for value in curve.points})
        panels = [Panel(curves[0].axis, what, _lines(curves, of_compiler, what), places) for what in MEASURES]
        panels.append(Panel(PEAK, STEP, _lines(curves, of_compiler, STEP, over=PEAK)))
        first, case = curves[0].comparisons[0], curves[0].case
        title = f"{case_name(case)}, {case.mode.value} {first.record.job.dtype}, {first.device}"
        yield curve_plot(summary, curves[0]), Strip(title, first, panels)


def _lines(curves: Sequence[Curve], of_compiler: Styles, what: str, over: str = "") -> list[Line]:
    """Eager's line and those of the candidates. ``over``: what is on the x axis, if not the curve's axis."""
    fullest = max(curves, key=lambda curve: len(curve.points))  # a point is missing where a candidate failed
    lines = [("eager", EAGER, _points(fullest, what, over, BASELINE))]
    for curve in curves:
        compiler = curve.comparisons[0].compiler
        if compiler != CONTROL or what == SPEEDUP:
            points = _points(curve, what, over, CANDIDATE)
            lines.append((compiler_name(compiler), of_compiler[compiler], points))
    return [line for line in lines if line[-1]]


def _points(curve: Curve, what: str, over: str, side: int) -> list[tuple[float, Estimate]]:
    there = {at: _measured(c, what, side) for at, c in curve.points.items()}
    if not over:
        return [(at, y) for at, y in there.items() if y]
    beside = {at: _measured(c, over, side) for at, c in curve.points.items()}
    return [(x.factor, single(y.factor)) for at, y in there.items() if y and (x := beside[at])]


def _measured(c: Result, what: str, side: int) -> Estimate | None:
    if what == STEP:
        samples = c.record.samples
        return median_ms((samples.candidate_s, samples.baseline_s)[side]) if samples else None
    if what == SPEEDUP:
        return c.estimate if side == CANDIDATE else None
    peaks, compilation = (c.candidate_peak_gb, c.baseline_peak_gb), (c.compile_s, None)
    value = {COMPILATION: compilation, PEAK: peaks}[what][side]
    return None if value is None else single(value)


def races(summary: Summary) -> Iterator[tuple[str, Strip]]:
    """The file of the races of each model, and its panels."""
    names = dict.fromkeys(name for form in summary.start_forms if (name := form_name(form)) != EAGER_START)
    of_form = {**pictures.styles(names), EAGER_START: EAGER}
    for _, group in groupby(summary.start_forms, key=lambda form: form.comparison.record.job.key):
        forms = {form_name(form): form for form in group}  # every candidate of the job has eager
        lines = []
        for name, form in forms.items():
            label = name if form.overtaking is None else f"{name}: {overtaking_text(form)}"
            points = [(seconds, single(n)) for n, seconds in enumerate(form.curve, 1)]
            lines.append((label, of_form[name], points))
        first = next(iter(forms.values())).comparison
        job, n = first.record.job, min(form.n for form in forms.values())
        title = f"{case_name(job.case)}, {job.case.mode.value} {job.dtype}, n = {n}"
        panels = [Panel("seconds since the model was built", "steps done", lines)]
        strip = Strip(title, first, panels, legend="from: overtakes eager after so many steps")
        yield plot_name(summary.labels[job.case.suite], job.dtype, "_start_up"), strip


def shares(summary: Summary) -> Iterator[tuple[str, Strip]]:
    """The file of the shares of each section (fast_p over p), and its panel."""
    of_compiler = pictures.styles(compilers(summary))
    for part, rows in groupby(fast(summary), key=lambda row: row.part):
        groups = [row.group for row in rows]
        speedups = sorted({1.0, *(speedup for group in groups for speedup in group.speedups)})
        ends = [speedups[0] / 1.1, *speedups, speedups[-1] * 1.1]
        lines = [
            (
                f"{compiler_name(group.compiler)}, n = {group.total}",
                {**of_compiler[group.compiler], "marker": ""},
                [(p, single(group.fast(p) / group.total)) for p in ends],
            )
            for group in groups
        ]
        panel = Panel("p: passed, and at least p times as fast as eager", SHARE, lines)
        yield fast_plot(part), Strip(part.title, part.comparisons[0], [panel])


def trajectories(summary: Summary) -> Iterator[tuple[str, Strip]]:
    """The file of the training runs of each model, and its panel."""
    of_compiler = pictures.styles(compilers(summary))
    for _, group in groupby(TRAJECTORIES.rows(summary), key=lambda row: row.record.job.key):
        rows, lines = list(group), list[Line]()
        for row in rows:
            known = row.record.trajectory
            assert known is not None
            curves = curves_of_loss(known)
            if not lines:
                lines = [(name, OTHERS[name], curves.pop(name)) for name in OTHERS if name in curves]
            own = curves[row.record.candidate]
            label = f"{compiler_name(row.compiler)}: {text(judged(known)) if own else 'the same loss'}"
            lines.append((label, of_compiler[row.compiler], own))
        job = rows[0].record.job
        title = f"{case_name(job.case)}, {job.case.mode.value} {job.dtype}"
        panel = Panel("step", "distance of the loss from eager's", lines)
        yield trajectory_plot(summary, rows[0]), Strip(title, rows[0], [panel])
