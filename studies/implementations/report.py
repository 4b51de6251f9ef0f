"""Report of study B: the study's table, the published table, the expectations, and curves."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from runner.analysis.digits import MISSING, significant
from runner.reports.parts.sections import environment_line
from studies.corpus import SIZES
from studies.implementations.claims import claims
from studies.implementations.results import LEVELS, Fitted, Point, fitted
from studies.journal import CUT_SHORT, PASS, Line
from studies.options import LEFT_DIGITS
from studies.report import Report, expectation_table, table
from studies.words import published, tables

Text = Callable[[Any], str]
THREE_DIGITS: Text = partial(significant, digits=3)
TITLES = {
    "addition": "Task 1: addition, beside the published table (A100-40GB, 60 s)",
    "shakespeare": "Task 2: characters of Shakespeare, beside the published table",
}


def render(lines: Sequence[Line]) -> Report:
    """An unmet expectation is in the report, but is not a failure."""
    from studies.plots import fitting_curves

    fits = fitted(lines)
    rows = [numbers(f) for f in fits]
    text = io.StringIO()
    writer = csv.DictWriter(text, [*rows[0]] if rows else [], lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    files = {"results.csv": text.getvalue().encode()}
    for task in dict.fromkeys(f.task for f in fits):
        files |= fitting_curves(task, [f for f in fits if f.task == task and f.points])
    cut = [name for name in lines[0].get("variants", ()) if name not in {f.name for f in fits}]
    failures = [f"{f.name}: {f.message}" for f in fits if f.status != PASS]
    failures += [f"{name}: {CUT_SHORT}" for name in cut]
    return Report(blocks=[*_blocks(lines[0], fits)], files=files, failures=failures)


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


def _blocks(study: Line, fits: Sequence[Fitted]) -> Iterator[str]:
    options = study["options"]
    published_task = _questions(options) == (["+"], LEFT_DIGITS)
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
    for task, title in TITLES.items():
        if members := [f for f in fits if f.task == task]:
            yield from (f"## {title}", _data(study, task), _beside(task, members))
            if task == "addition":
                if not published_task:
                    yield "NOT the same task: the published questions are additions of three digits."
                yield _when(members)
            yield tables("words")["notes"][task]
    if study["refused"]:
        yield f"Task 2 was left out: {study['refused']}"
    yield "## Do the source's claims hold here?"
    yield expectation_table(claims(fits), judged=not options["quick"] and published_task)


def _questions(options: Mapping[str, Any]) -> tuple[list[str], int]:
    """Signs and digits of the questions. Older records have additions of three digits only."""
    return list(options.get("operations", ("+",))), int(options.get("digits", LEFT_DIGITS))


def _data(study: Line, task: str) -> str:
    options = study["options"]
    if task == "addition":
        signs, digits = _questions(options)
        order = "backwards" if options["reverse"] else "forwards"
        return f"Questions with {' and '.join(signs)}, numbers of {digits} digits, written {order}."
    if study["text"] != "shakespeare":
        return "NOT Shakespeare but a synthetic text."
    sizes = study.get("text_sizes") or SIZES  # the text has a checksum, so older records had the same sizes
    counts = f"{sizes['characters']:,} characters, {sizes['distinct']} distinct"
    return f"{counts}; the last {sizes['held_out']:,} are held out."


def _when(fits: Sequence[Fitted]) -> str:
    def text(point: Point | None) -> str:
        return "not reached" if point is None else f"{point.step:,}, {point.seconds:.1f} s"

    heads = ["model", "learning_rate", *(f"steps, seconds to {level:.1%}" for level in LEVELS)]
    return table(
        heads,
        [[f.model, f"{f.learning_rate:g}", *(text(f.reached(level)) for level in LEVELS)] for f in fits],
    )


BESIDE: Mapping[str, Mapping[str, tuple[str, Text]]] = {
    "addition": {
        "train loss": ("train_loss", "{:.3f}".format),
        "test loss": ("test_loss", "{:.3f}".format),
        "accuracy": ("test_accuracy", "{:.3f}".format),
        "µs per example": ("time_per_example_in_micros", THREE_DIGITS),
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
OURS: Mapping[str, tuple[str, Text]] = {
    "parameters": ("num_parameters", "{:,}".format),
    "train accuracy": ("train_accuracy", "{:.3f}".format),
    "inference, µs": ("inference_micros", THREE_DIGITS),
}
"""Columns that the published tables do not have."""


def _beside(task: str, members: Sequence[Fitted]) -> str:
    """The rows of the published table and ours. Beside each published column is ours, then ``OURS``."""
    columns = BESIDE[task]
    theirs = {first: cells for first, *cells in (tuple(row.values()) for row in published(task))}
    ours = {_label(f): f for f in members}
    lines = []
    for label in dict.fromkeys((*theirs, *ours)):
        values = numbers(ours[label]) if label in ours else {}
        missing = MISSING if values.get("status") in (None, PASS) else values["status"]
        texts = [
            missing if values.get(name) is None else text(values[name])
            for name, text in (*columns.values(), *OURS.values())
        ]
        pairs = zip(theirs.get(label, [MISSING] * len(columns)), texts, strict=False)
        lines.append([label, *(cell for pair in pairs for cell in pair), *texts[len(columns) :]])
    heads = [head for column in columns for head in (f"{column}, published", "ours")]
    return table([next(iter(published(task)[0])), *heads, *OURS], lines)


def _label(f: Fitted) -> str:
    """The first column of the published table."""
    name = f.case.replace("_shakespeare_", " ")
    return f"{f.model} {f.learning_rate:g}" if f.task == "addition" else name
