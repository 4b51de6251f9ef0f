"""The pictures of study A, as PNG and SVG."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from runner.reports.parts.axes import COLORS, new_figure
from runner.reports.parts.pictures import pictures, plain_style
from studies.training_time.results import Row, Training


def loss_curves(found: Sequence[Training]) -> Mapping[str, bytes]:
    """Losses on held-out text of all variants, overlaid; a panel for each precision, all seeds."""
    precisions = list(dict.fromkeys(training.precision for training in found))
    modes = list(dict.fromkeys(training.mode for training in found))
    with plain_style():
        figure = new_figure(5.5 * len(precisions), 4.0)
        panels = figure.subplots(1, len(precisions), squeeze=False, sharey=True)[0]
        for panel, precision in zip(panels, precisions, strict=True):
            shown: set[str] = set()
            for training in found:
                if training.precision != precision or not training.evaluations:
                    continue
                place = modes.index(training.mode)
                panel.plot(
                    [step for step, _, _ in training.evaluations],
                    [valid for _, _, valid in training.evaluations],
                    color=COLORS[place % len(COLORS)],
                    linewidth=max(0.6, 6.0 - 1.4 * place),  # equal curves lie inside each other
                    label=None if training.mode in shown else training.mode,
                )
                shown.add(training.mode)
            panel.set_title(precision, loc="left")
            panel.set_xlabel("step")
            panel.legend(frameon=False)
        panels[0].set_ylabel("loss on held-out text, nats; a line for each seed")
    return pictures("loss_curves.png", figure)


def time_bars(made: Sequence[Row]) -> Mapping[str, bytes]:
    """Wall time of each variant, compile and run stacked."""
    timed = [(row, row.compile_s, row.run_s) for row in made if row.run_s is not None]
    with plain_style():
        figure = new_figure(7.5, 1.0 + 0.3 * max(1, len(timed)))
        axes = figure.subplots()
        labels = [f"{row.precision} {row.mode}" for row, _, _ in timed]
        runs = [run for _, _, run in timed]
        axes.barh(labels, runs, color=COLORS[0], label="run")
        axes.barh(labels, [c or 0.0 for _, c, _ in timed], left=runs, color=COLORS[1], label="compile")
        axes.invert_yaxis()
        axes.set_xlabel("seconds of one whole training run")
        axes.legend(frameon=False)
    return pictures("wall_time.png", figure)
