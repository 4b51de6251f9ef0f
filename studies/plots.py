"""The pictures of studies A and B, as PNG and SVG."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from runner.reports.parts.axes import COLORS, LINES, light_grid, new_figure
from runner.reports.parts.pictures import pictures, plain_style

if TYPE_CHECKING:
    from studies.implementations.results import Fitted
    from studies.training_time.results import Results


def loss_curves(summary: Results) -> Mapping[str, bytes]:
    """Study A: losses on held-out text, overlaid; a panel for each precision, a line for each seed."""
    evaluated = summary.chunks.dropna(subset="valid")
    rows = summary.rows.values()
    precisions, modes = (
        list(dict.fromkeys(names)) for names in zip(*((r.precision, r.mode) for r in rows), strict=True)
    )
    with plain_style():
        figure = new_figure(5.5 * len(precisions), 4.0)
        panels = figure.subplots(1, len(precisions), squeeze=False, sharey=True)[0]
        for panel, precision in zip(panels, precisions, strict=True):
            for place, mode in enumerate(modes):
                curves = evaluated[evaluated["variant"] == f"{precision} {mode}"].groupby("seed")
                for number, (_, curve) in enumerate(curves):
                    panel.plot(
                        curve["last"],
                        curve["valid"],
                        color=COLORS[place % len(COLORS)],
                        linewidth=max(0.6, 6.0 - 1.4 * place),  # equal curves lie inside each other
                        label=None if number else mode,
                    )
            panel.set_title(precision, loc="left")
            panel.set_xlabel("step")
            panel.legend(frameon=False)
        panels[0].set_ylabel("loss on held-out text, nats; a line for each seed")
    return pictures("loss_curves.png", figure)


def fitting_curves(task: str, fits: Sequence[Fitted]) -> Mapping[str, bytes]:
    """Study B: losses and accuracies over the seconds of training; thin lines are those of training."""
    from matplotlib.ticker import LogLocator, NullFormatter, StrMethodFormatter

    models = sorted({f.model for f in fits})
    with plain_style():
        figure = new_figure(11.0, 4.2)
        panels = figure.subplots(1, 2)
        for f in fits:
            # a line style for each learning rate or size of a model
            place = [other.name for other in fits if other.model == f.model].index(f.name)
            style = {"color": COLORS[models.index(f.model) % len(COLORS)], "ls": LINES[place % len(LINES)]}
            label = f"{f.case.replace(f'_{task}', '')} lr {f.learning_rate:g}"
            for panel, what in zip(panels, ("loss", "accuracy"), strict=True):
                seconds, test, train = (
                    [getattr(point, name) for point in f.points]
                    for name in ("seconds", f"test_{what}", f"train_{what}")
                )
                panel.plot(seconds, test, label=label, linewidth=1.3, marker=".", ms=3, **style)
                panel.plot(seconds, train, linewidth=0.6, alpha=0.5, **style)
        measured = any(point.train_accuracy is not None for f in fits for point in f.points)
        for panel, what, thin in zip(
            panels, ("loss, nats", "accuracy by symbol"), (True, measured), strict=True
        ):
            y_label = f"{what} (thin: training)" if thin else what
            panel.set(xscale="log", xlabel="seconds of training", ylabel=y_label)
            panel.xaxis.set_major_locator(LogLocator(subs=(1, 3), numticks=9))
            panel.xaxis.set_major_formatter(StrMethodFormatter("{x:g}"))  # plain numbers
            panel.xaxis.set_minor_formatter(NullFormatter())
            light_grid(panel, hidden=())
        if fits:
            figure.legend(*panels[0].get_legend_handles_labels(), loc="outside right upper", frameon=False)
    return pictures(f"curves_{task}.png", figure)
