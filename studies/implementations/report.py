"""Report of study B: the study's table, the published table, the expectations, and curves."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import pandas as pd

from runner.analysis.digits import MISSING, significant
from runner.reports.parts.axes import COLORS, LINES, light_grid, new_figure
from runner.reports.parts.pictures import pictures, plain_style
from runner.reports.parts.sections import environment_line
from studies.corpus import SIZES
from studies.implementations.results import LEVELS, Fitted, claims, fitted
from studies.journal import CUT_SHORT, PASS, Line
from studies.options import LEFT_DIGITS, tables
from studies.report import Report, expectation_table, part, published, table

ANOTHER_TASK = "NOT the same task: the published questions are additions of three digits."
MORE = {"num_parameters": ",", "train_accuracy": ".3f", "inference_micros": ""}
MORE_HEADS = ("parameters", "train accuracy", "inference, µs")
"""Columns that the published tables do not have."""
SPLIT = "{characters:,} characters, {distinct} distinct; the last {held_out:,} are held out."


def render(lines: Sequence[Line]) -> Report:
    """An unmet expectation is in the report, but is not a failure."""
    fits = fitted(lines)
    files = {
        "results.csv": pd.DataFrame([f.numbers() for f in fits], dtype=object).to_csv(index=False).encode()
    }
    for task in dict.fromkeys(f.task for f in fits):
        files |= _curves(task, [f for f in fits if f.task == task and f.points])
    ended = {f.variant for f in fits}
    failures = [f"{f.variant}: {f.message}" for f in fits if f.status != PASS]
    failures += [f"{name}: {CUT_SHORT}" for name in lines[0].get("variants", ()) if name not in ended]
    return Report(blocks=[*_blocks(lines[0], fits)], files=files, failures=failures)


def _blocks(study: Line, fits: Sequence[Fitted]) -> Iterator[str]:
    options = study["options"]
    # older records have additions of three digits only
    signs, digits = options.get("operations", ["+"]), options.get("digits", LEFT_DIGITS)
    published_task = (signs, digits) == (["+"], LEFT_DIGITS)
    budgets = {
        "addition": f"{options['budget_s']:g} s on addition",
        "shakespeare": f"{options['text_budget_s']:g} s on text (the third MLP twice that)",
    }
    tasks = [task for task in options.get("tasks", budgets) if task == "addition" or not study["refused"]]
    yield "# Study B: four implementations of a small language model, two tasks"
    yield (
        f"Each model trained for at most {' and '.join(budgets[task] for task in tasks)}, "
        f"without the time of evaluations. {environment_line(study['environment'])}."
    )
    if options["quick"]:
        yield "A trial run (--quick): fewer additions, short budgets. The figures mean nothing."
    if on_addition := [f for f in fits if f.task == "addition"]:
        asked = f"Questions with {' and '.join(signs)}, numbers of {digits} digits, written backwards."
        other = "" if published_task else ANOTHER_TASK
        yield from part("addition", asked, _beside("addition", on_addition), other, _when(on_addition))
    if on_text := [f for f in fits if f.task == "shakespeare"]:
        text = "NOT Shakespeare but a synthetic text."
        if study["text"] == "shakespeare":  # it has a checksum, so older records had the same sizes
            text = SPLIT.format(**study.get("text_sizes", SIZES))
        yield from part("shakespeare", text, _beside("shakespeare", on_text))
    if study["refused"]:
        yield f"Task 2 was left out: {study['refused']}"
    yield "## Do the source's claims hold here?"
    yield expectation_table(claims(fits), judged=not options["quick"] and published_task)


def _when(fits: Sequence[Fitted]) -> str:
    heads = ["model", "learning_rate", *(f"steps, seconds to {level:.1%}" for level in LEVELS)]
    rows = []
    for f in fits:
        texts = (f"{p.step:,}, {p.seconds:.1f} s" if p else "not reached" for p in map(f.reached, LEVELS))
        rows.append([f.model, f"{f.learning_rate:g}", *texts])
    return table(heads, rows)


def _beside(task: str, members: Sequence[Fitted]) -> str:
    """The rows of the published table and ours. Beside each published column is ours, then ``MORE``."""
    first, *columns = tables("published")[task]["columns"]
    digits = {**tables("published")[task]["ours"], **MORE}
    theirs = {row.pop(first): [*row.values()] for row in published(task)}
    ours = {
        f.name if task == "addition" else f.case.replace("_shakespeare_", " "): f.numbers() for f in members
    }
    lines = []
    for label in {**theirs, **ours}:
        values = ours.get(label, {"status": PASS})
        missing = MISSING if values["status"] == PASS else values["status"]
        texts = [
            missing if value is None else format(value, how) if how else significant(value, 3)
            for value, how in ((values.get(name), how) for name, how in digits.items())
        ]
        pairs = zip(theirs.get(label, [MISSING] * len(columns)), texts, strict=False)
        lines.append([label, *(cell for pair in pairs for cell in pair), *texts[len(columns) :]])
    heads = [head for column in columns for head in (f"{column}, published", "ours")]
    return table([first, *heads, *MORE_HEADS], lines)


def _curves(task: str, fits: Sequence[Fitted]) -> Mapping[str, bytes]:
    """Losses and accuracies over the seconds of training; thin lines are those of training."""
    from matplotlib.ticker import LogLocator, NullFormatter, StrMethodFormatter

    models = sorted({f.model for f in fits})
    measured = any(point.train_accuracy is not None for f in fits for point in f.points)
    with plain_style():
        figure = new_figure(11.0, 4.2)
        panels = figure.subplots(1, 2)
        for panel, what, unit in zip(panels, ("loss", "accuracy"), ("nats", ""), strict=True):
            for f in fits:
                # a line style for each learning rate or size of a model
                place = [other.variant for other in fits if other.model == f.model].index(f.variant)
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
