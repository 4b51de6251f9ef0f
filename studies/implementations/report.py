"""Report of study B: the study's table, the published table, the expectations, and curves."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from typing import Any

from runner.analysis.digits import MISSING, significant
from studies.corpus import SIZES
from studies.expectations import Expectation, expectation_table
from studies.implementations.addition import LEFT_DIGITS
from studies.implementations.claims import claims
from studies.implementations.plots import curves
from studies.implementations.published import ADDITION, SHAKESPEARE
from studies.implementations.results import LEVELS, Fitted, Point, fitted
from studies.journal import Line
from studies.markdown import environment_text, table

COLUMNS = (
    "model",
    "learning_rate",
    "train_loss",
    "test_loss",
    "test_accuracy",
    "num_parameters",
    "time_per_example_in_micros",
    "train_time_in_seconds",
)
OURS = ("train_accuracy", "inference_micros")
TEXT_NOTE = (
    "Losses in nats. Every model is evaluated on held-out text; the published study evaluated NanoGPT on a "
    "training batch by mistake. Transformers predict at every position of a window, so their losses include "
    "positions with few preceding characters; an MLP always sees 128 characters."
)
TITLES = {"addition": "Task 1: addition", "shakespeare": "Task 2: characters of Shakespeare"}


def render(lines: Sequence[Line]) -> Mapping[str, bytes]:
    found = fitted(lines)
    return {
        "report.md": "\n".join(_report(lines[0], found)).encode(),
        "results.csv": _csv(found),
        **curves(found),
    }


def failures(lines: Sequence[Line]) -> list[str]:
    """A sentence for each failed training. An unmet expectation is in the report, but is not a failure."""
    return [f"{f.name}: {f.message}" for f in fitted(lines) if f.status != "PASS"]


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
        members = [f for f in found if f.task == task]
        if members:
            lines += ["", f"## {title}", "", _data(study, task), ""]
            lines += table((*COLUMNS, *OURS), [_cells(f) for f in members])
            lines += ["", *(_when(members) if task == "addition" else [TEXT_NOTE])]
    if study["refused"]:
        lines += ["", f"Task 2 was left out: {study['refused']}"]
    judged = not options["quick"] and _as_published(options)
    return [*lines, "", *_claims(claims(found), judged=judged), "", *_published(found, options)]


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
    last, micros, inference = f.last, f.micros, f.inference_micros
    if last is None or micros is None:
        return [_label(f), f"{f.learning_rate:g}", f.status, *[MISSING] * (len(COLUMNS) + len(OURS) - 3)]
    return [
        _label(f),
        f"{f.learning_rate:g}",
        f"{last.train_loss:.3f}",
        f"{last.test_loss:.3f}",
        f"{last.test_accuracy:.3f}",
        MISSING if f.num_parameters is None else f"{f.num_parameters:,}",
        significant(micros, 3),
        f"{last.seconds:.1f}",
        MISSING if last.train_accuracy is None else f"{last.train_accuracy:.3f}",
        MISSING if inference is None else significant(inference, 3),
    ]


def _label(f: Fitted) -> str:
    """The model. On text the label includes the size, because a model has several."""
    return f.model if f.task == "addition" else f.case.replace("_shakespeare_", " ")


def _when(found: Sequence[Fitted]) -> list[str]:
    heads = ["model", "learning_rate", *(f"steps, seconds to {level:.1%}" for level in LEVELS)]
    lines = [
        [f.model, f"{f.learning_rate:g}", *(_reached(f.reached(level)) for level in LEVELS)] for f in found
    ]
    note = "The first evaluation on held-out examples that reached this accuracy, by symbol."
    return [*table(heads, lines), "", note]


def _reached(point: Point | None) -> str:
    return "not reached" if point is None else f"{point.step:,}, {point.seconds:.1f} s"


def _claims(found: Sequence[Expectation], *, judged: bool) -> list[str]:
    return ["## Do the source's claims hold here?", "", *expectation_table(found, judged=judged)]


def _published(found: Sequence[Fitted], options: Mapping[str, Any]) -> list[str]:
    tasks = {f.task for f in found}
    lines = []
    if "addition" in tasks:
        lines += ["## Beside the published table on addition (A100-40GB, 60 s)", ""]
        lines += [*_published_addition(found), ""]
        if not _as_published(options):
            lines += ["NOT the same task: the published questions are additions of three digits.", ""]
    if "shakespeare" in tasks:
        lines += ["## Beside the published table on Shakespeare", "", *_published_text(found)]
    return lines


def _published_addition(found: Sequence[Fitted]) -> list[str]:
    ours = {(f.model, f.learning_rate): f for f in found if f.task == "addition"}
    lines = []
    for (model, rate), row in ADDITION.items():
        f = ours.get((model, rate))
        last = f.last if f else None
        lines.append(
            [
                f"{model} {rate:g}",
                f"{row.train_loss:.3f}",
                MISSING if last is None else f"{last.train_loss:.3f}",
                f"{row.test_loss:.3f}",
                MISSING if last is None else f"{last.test_loss:.3f}",
                f"{row.accuracy:.3f}",
                MISSING if last is None else f"{last.test_accuracy:.3f}",
                f"{row.micros:g}",
                MISSING if f is None or f.micros is None else significant(f.micros, 3),
                f"{row.seconds:g}",
                MISSING if last is None else f"{last.seconds:.1f}",
            ]
        )
    heads = ["model, learning rate"]
    for column in ("train loss", "test loss", "accuracy", "µs per example", "seconds"):
        heads += [f"{column}, published", "ours"]
    return table(heads, lines)


def _published_text(found: Sequence[Fitted]) -> list[str]:
    ours = {f.case: f for f in found}
    lines = []
    for case, row in SHAKESPEARE.items():
        f = ours.get(case)
        lines.append(
            [
                case.replace("_shakespeare_", " "),
                *(f"{row.learning_rate:g}", MISSING if f is None else f"{f.learning_rate:g}"),
                *(f"{row.batch:,}", MISSING if f is None else f"{f.batch:,}"),
                *(f"{row.budget_s:g}", MISSING if f is None or f.last is None else f"{f.last.seconds:.0f}"),
                f"{row.test_loss:.2f} {row.note}".strip(),
                MISSING if f is None or f.last is None else f"{f.last.test_loss:.2f}",
            ]
        )
    heads = ["model"]
    for column in ("learning rate", "batch", "seconds", "test loss"):
        heads += [f"{column}, published", "ours"]
    return [
        *table(heads, lines),
        "",
        (
            "The published table has two rows for MLPs; the third MLP, which had 600 s, is not in it. Of its "
            "measured columns, this project has the test loss alone."
        ),
    ]


def _csv(found: Sequence[Fitted]) -> bytes:
    """A line for each training: the study's columns, then further columns."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    levels = [f"{what}_to_{level:g}" for level in LEVELS for what in ("steps", "seconds")]
    writer.writerow([*COLUMNS, *OURS, "task", "case", "batch", "steps", *levels, "status"])
    for f in found:
        last = f.last
        figures = (
            [last.train_loss, last.test_loss, last.test_accuracy, f.num_parameters, f.micros, last.seconds]
            if last
            else [None, None, None, f.num_parameters, None, None]
        )
        points = [f.reached(level) for level in LEVELS]
        when = [value for p in points for value in ((p.step, p.seconds) if p else (None, None))]
        steps = last.step if last else None
        accuracy = last.train_accuracy if last else None
        own = [accuracy, f.inference_micros, f.task, f.case, f.batch, steps, *when, f.status]
        writer.writerow([f.model, f.learning_rate, *figures, *own])
    return text.getvalue().encode()
