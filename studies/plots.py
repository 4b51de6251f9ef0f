"""The pictures of studies A and B, as PNG and SVG."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from runner.reports.parts.axes import COLORS, LINES, light_grid, new_figure
from runner.reports.parts.pictures import pictures, plain_style

if TYPE_CHECKING:
    from studies.implementations.results import Fitted
    from studies.training_time.results import Variant


def loss_curves(variants: Sequence[Variant]) -> Mapping[str, bytes]:
    """Study A: losses on held-out text, overlaid; a panel for each precision, a line for each seed."""
    precisions, modes = (
        dict.fromkeys(v.precision for v in variants),
        [*dict.fromkeys(v.mode for v in variants)],
    )
    with plain_style():
        figure = new_figure(5.5 * len(precisions), 4.0)
        panels = figure.subplots(1, len(precisions), squeeze=False, sharey=True)[0]
        for panel, precision in zip(panels, precisions, strict=True):
            for variant in (v for v in variants if v.precision == precision):
                place = modes.index(variant.mode)
                curves = [curve for training in variant.trainings if (curve := training.losses)]
                for number, curve in enumerate(curves):
                    panel.plot(
                        [*curve],
                        [*curve.values()],
                        color=COLORS[place % len(COLORS)],
                        linewidth=max(0.6, 6.0 - 1.4 * place),  # equal curves lie inside each other
                        label=None if number else variant.mode,
                    )
            panel.set_title(precision, loc="left")
            panel.set_xlabel("step")
            if panel.lines:
                panel.legend(frameon=False)
        panels[0].set_ylabel("loss on held-out text, nats; a line for each seed")
    return pictures("loss_curves.png", figure)


def fitting_curves(task: str, fits: Sequence[Fitted]) -> Mapping[str, bytes]:
    """Study B: losses and accuracies over the seconds of training; thin lines are those of training."""
    from matplotlib.ticker import LogLocator, NullFormatter, StrMethodFormatter

    models = sorted({f.model for f in fits})
    measured = any(point.train_accuracy is not None for f in fits for point in f.points)
    with plain_style():
        figure = new_figure(11.0, 4.2)
        panels = figure.subplots(1, 2)
        for panel, what, unit in zip(panels, ("loss", "accuracy"), ("nats", ""), strict=True):
            for f in fits:
                # a line style for each learning rate or size of a model
                place = [other.name for other in fits if other.model == f.model].index(f.name)
                style = {
                    "color": COLORS[models.index(f.model) % len(COLORS)],
                    "ls": LINES[place % len(LINES)],
                }
                seconds = [point.seconds for point in f.points]
                test, train = ([getattr(p, f"{part}_{what}") for p in f.points] for part in ("test", "train"))
                label = f"{f.case.replace(f'_{task}', '')} lr {f.learning_rate:g}"
                panel.plot(seconds, test, label=label, linewidth=1.3, marker=".", ms=3, **style)
                panel.plot(seconds, train, linewidth=0.6, alpha=0.5, **style)
            thin = " (thin: training)" if measured or unit else ""
            name = f"{what}, {unit}" if unit else f"{what} by symbol"
            panel.set(xscale="log", xlabel="seconds of training", ylabel=f"{name}{thin}")
            panel.xaxis.set_major_locator(LogLocator(subs=(1, 3), numticks=9))
            panel.xaxis.set_major_formatter(StrMethodFormatter("{x:g}"))  # plain numbers
            panel.xaxis.set_minor_formatter(NullFormatter())
            light_grid(panel, hidden=())
        if fits:
            figure.legend(*panels[0].get_legend_handles_labels(), loc="outside right upper", frameon=False)
    return pictures(f"curves_{task}.png", figure)
