"""Plots of study B: held-out loss and accuracy over the seconds of training."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from runner.reports.parts.axes import COLORS, LINES, new_figure
from runner.reports.parts.pictures import pictures, plain_style
from studies.implementations.results import Fitted
from studies.ticks import plain_ticks


def curves(found: Sequence[Fitted]) -> Mapping[str, bytes]:
    """``curves_TASK.png`` and ``.svg`` for each trained task."""
    files: dict[str, bytes] = {}
    for task in dict.fromkeys(f.task for f in found):
        files.update(_curves(task, [f for f in found if f.task == task and f.points]))
    return files


def _curves(task: str, found: Sequence[Fitted]) -> Mapping[str, bytes]:
    models = sorted({f.model for f in found})
    with plain_style():
        figure = new_figure(11.0, 4.2)
        loss, accuracy = figure.subplots(1, 2)
        for f in found:
            # a line style for each learning rate or size of a model
            place = [other.name for other in found if other.model == f.model].index(f.name)
            color, style = COLORS[models.index(f.model) % len(COLORS)], LINES[place % len(LINES)]
            seconds = [point.seconds for point in f.points]
            label = f"{f.case.replace(f'_{task}', '')} lr {f.learning_rate:g}"
            for panel, values in (
                (loss, [point.test_loss for point in f.points]),
                (accuracy, [point.test_accuracy for point in f.points]),
            ):
                panel.plot(seconds, values, style, color=color, label=label, linewidth=1.3, marker=".", ms=3)
            for panel, trained in (
                (loss, [point.train_loss for point in f.points]),
                (accuracy, [point.train_accuracy for point in f.points]),
            ):
                if None not in trained:  # older records have no accuracy on training batches
                    panel.plot(seconds, trained, style, color=color, linewidth=0.6, alpha=0.5)
        measured = any(point.train_accuracy is not None for f in found for point in f.points)
        thin = " (thin: training)"
        words = ((loss, f"loss, nats{thin}"), (accuracy, f"accuracy by symbol{thin if measured else ''}"))
        for panel, text in words:
            panel.set_xlabel("seconds of training")
            panel.set_ylabel(text)
            panel.set_xscale("log")
            plain_ticks(panel, [point.seconds for f in found for point in f.points])
            panel.grid(color="#DDDDDD", linewidth=0.5)
        if found:
            figure.legend(*loss.get_legend_handles_labels(), loc="outside right upper", frameon=False)
    return pictures(f"curves_{task}.png", figure)
