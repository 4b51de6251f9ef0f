"""Report of study B: the study's table, the published table, the expectations, and curves."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pandas as pd

from runner.analysis.digits import MISSING, significant
from studies.corpus import SIZES
from studies.expectations import environment_text, expectation_table, table
from studies.implementations.addition import LEFT_DIGITS
from studies.implementations.claims import claims
from studies.implementations.results import LEVELS, Fitted, Point, fitted
from studies.journal import Line
from studies.published import published

Text = Callable[[Any], str]
COLUMNS: Mapping[str, Text] = {
    "model": str,
    "learning_rate": "{:g}".format,
    "train_loss": "{:.3f}".format,
    "test_loss": "{:.3f}".format,
    "test_accuracy": "{:.3f}".format,
    "num_parameters": "{:,}".format,
    "time_per_example_in_micros": lambda value: significant(value, 3),
    "train_time_in_seconds": "{:.1f}".format,
    "train_accuracy": "{:.3f}".format,
    "inference_micros": lambda value: significant(value, 3),
}
"""The source's columns, then two of ours, and how the report writes them."""
TEXT_NOTE = (
    "Losses in nats. Every model is evaluated on held-out text; the published study evaluated NanoGPT on a "
    "training batch by mistake. Transformers predict at every position of a window, so their losses include "
    "positions with few preceding characters; an MLP always sees 128 characters."
)
PUBLISHED_NOTE = (
    "The published table has two rows for MLPs; the third MLP, which had 600 s, is not in it. Of its "
    "measured columns, this project has the test loss alone."
)
TITLES = {"addition": "Task 1: addition", "shakespeare": "Task 2: characters of Shakespeare"}


def render(lines: Sequence[Line]) -> tuple[Mapping[str, bytes], list[str]]:
    """An unmet expectation is in the report, but is not a failure."""
    from studies.plots import fitting_curves

    found = fitted(lines)
    files = {
        "report.md": "\n".join(_report(lines[0], found)).encode(),
        "results.csv": pd.DataFrame([numbers(f) for f in found], dtype=object).to_csv(index=False).encode(),
    }
    for task in dict.fromkeys(f.task for f in found):
        files |= fitting_curves(task, [f for f in found if f.task == task and f.points])
    return files, [f"{f.name}: {f.message}" for f in found if f.status != "PASS"]


def numbers(f: Fitted) -> dict[str, Any]:
    """The columns of the source, then further columns: a line of results.csv."""
    last = f.last
    reached = {
        f"{what}_to_{level:g}": getattr(f.reached(level), name, None)
        for level in LEVELS
        for what, name in (("steps", "step"), ("seconds", "seconds"))
    }
    return {
        "model": f.model,
        "learning_rate": f.learning_rate,
        **{name: getattr(last, name, None) for name in ("train_loss", "test_loss", "test_accuracy")},
        "num_parameters": f.num_parameters,
        "time_per_example_in_micros": f.micros,
        "train_time_in_seconds": last.seconds if last else None,
        "train_accuracy": last.train_accuracy if last else None,
        "inference_micros": f.inference_micros,
        "task": f.task,
        "case": f.case,
        "batch": f.batch,
        "steps": last.step if last else None,
        **reached,
        "status": f.status,
    }


def _report(study: Line, found: Sequence[Fitted]) -> list[str]:
    options = study["options"]
    budgets = {
        "addition": f"{options['budget_s']:g} s on addition",
        "shakespeare": f"{options['text_budget_s']:g} s on text",
    }
    tasks = options.get("tasks", budgets)
    lines = [
        "# Study B: four implementations of a small language model, two tasks",
        "",
        (
            f"Each model trained for at most {' and '.join(budgets[task] for task in tasks)}, "
            f"without the time of evaluations. {environment_text(study['environment'])}"
        ),
    ]
    if options["quick"]:
        lines += ["", "A trial run (--quick): fewer additions, short budgets. The figures mean nothing."]
    for task, title in TITLES.items():
        if members := [f for f in found if f.task == task]:
            lines += ["", f"## {title}", "", _data(study, task), ""]
            lines += table(tuple(COLUMNS), [_cells(f) for f in members])
            lines += ["", *(_when(members) if task == "addition" else [TEXT_NOTE])]
    if study["refused"]:
        lines += ["", f"Task 2 was left out: {study['refused']}"]
    judged = not options["quick"] and _as_published(options)
    lines += ["", "## Do the source's claims hold here?", ""]
    return [*lines, *expectation_table(claims(found), judged=judged), "", *_published(found, options)]


def _questions(options: Mapping[str, Any]) -> tuple[list[str], int]:
    """Signs and digits of the questions. Older records have additions of three digits only."""
    return list(options.get("operations", ("+",))), int(options.get("digits", LEFT_DIGITS))


def _as_published(options: Mapping[str, Any]) -> bool:
    return _questions(options) == (["+"], LEFT_DIGITS)


def _data(study: Line, task: str) -> str:
    options = study["options"]
    if task == "addition":
        signs, digits = _questions(options)
        order = "backwards" if options["reverse"] else "forwards"
        return f"Questions with {' and '.join(signs)}, numbers of {digits} digits, written {order}."
    if study["text"] != "shakespeare":
        return "NOT Shakespeare but a synthetic text."
    sizes = study.get("text_sizes") or SIZES  # the text has a checksum, so older records had the same sizes
    return (
        f"{sizes['characters']:,} characters, {sizes['distinct']} distinct; the last {sizes['held_out']:,} "
        "are held out."
    )


def _cells(f: Fitted) -> list[str]:
    """On text the label of the model includes the size, because a model has several."""
    label = f.model if f.task == "addition" else _size(f.case)
    if f.last is None:
        return [label, f"{f.learning_rate:g}", f.status, *[MISSING] * (len(COLUMNS) - 3)]
    values = {**numbers(f), "model": label}
    return [MISSING if values[name] is None else text(values[name]) for name, text in COLUMNS.items()]


def _size(case: str) -> str:
    return case.replace("_shakespeare_", " ")


def _when(found: Sequence[Fitted]) -> list[str]:
    heads = ["model", "learning_rate", *(f"steps, seconds to {level:.1%}" for level in LEVELS)]
    lines = [
        [f.model, f"{f.learning_rate:g}", *(_reached(f.reached(level)) for level in LEVELS)] for f in found
    ]
    note = "The first evaluation on held-out examples that reached this accuracy, by symbol."
    return [*table(heads, lines), "", note]


def _reached(point: Point | None) -> str:
    return "not reached" if point is None else f"{point.step:,}, {point.seconds:.1f} s"


def _published(found: Sequence[Fitted], options: Mapping[str, Any]) -> list[str]:
    tasks = {f.task for f in found}
    lines = []
    if "addition" in tasks:
        lines += ["## Beside the published table on addition (A100-40GB, 60 s)", ""]
        lines += [*_beside("addition", found), ""]
        if not _as_published(options):
            lines += ["NOT the same task: the published questions are additions of three digits.", ""]
    if "shakespeare" in tasks:
        lines += ["## Beside the published table on Shakespeare", "", *_beside("shakespeare", found)]
        lines += ["", PUBLISHED_NOTE]
    return lines


BESIDE: Mapping[str, Mapping[str, tuple[str, Text]]] = {
    "addition": {
        "train loss": ("train_loss", "{:.3f}".format),
        "test loss": ("test_loss", "{:.3f}".format),
        "accuracy": ("test_accuracy", "{:.3f}".format),
        "µs per example": ("time_per_example_in_micros", COLUMNS["time_per_example_in_micros"]),
        "seconds": ("train_time_in_seconds", "{:.1f}".format),
    },
    "shakespeare": {
        "learning rate": ("learning_rate", "{:g}".format),
        "batch": ("batch", "{:,}".format),
        "seconds": ("train_time_in_seconds", "{:.0f}".format),
        "test loss": ("test_loss", "{:.2f}".format),
    },
}
"""The columns of the published tables -> our column, and how it is written."""


def _beside(task: str, found: Sequence[Fitted]) -> list[str]:
    """The published table; beside each column ours."""
    columns = BESIDE[task]
    ours = {_label(f): numbers(f) for f in found if f.task == task and f.last}
    lines = []
    for first, *theirs in (tuple(row.values()) for row in published(task)):
        values = ours.get(first)
        cells = [text(values[name]) if values else MISSING for name, text in columns.values()]
        lines.append([first, *(cell for pair in zip(theirs, cells, strict=True) for cell in pair)])
    heads = [head for column in columns for head in (f"{column}, published", "ours")]
    return table([next(iter(published(task)[0])), *heads], lines)


def _label(f: Fitted) -> str:
    """The first column of the published table."""
    return f"{f.model} {f.learning_rate:g}" if f.task == "addition" else _size(f.case)
