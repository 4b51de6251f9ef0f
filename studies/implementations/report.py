"""Report of study B: the study's table, the published table, the expectations, and curves."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence

from runner.analysis.digits import MISSING, significant
from studies.implementations.plots import curves
from studies.implementations.results import LEVELS, Expectation, Fitted, Point, expectations, fitted
from studies.journal import Line
from studies.markdown import environment_text, table
from studies.published import ADDITION, SHAKESPEARE

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
    written = "reversed" if options["reverse"] else "plain"
    lines = [
        "# Study B: four implementations of a small language model, two tasks",
        "",
        (
            f"Each model trained for at most {options['budget_s']:g} s on addition (digits {written}) and "
            f"{options['text_budget_s']:g} s on text, without the time of evaluations. "
            f"{environment_text(study['environment'])}"
        ),
    ]
    if options["quick"]:
        lines += ["", "A trial run (--quick): fewer additions, short budgets. The figures mean nothing."]
    for task, title in TITLES.items():
        members = [f for f in found if f.task == task]
        if members:
            lines += ["", f"## {title}", "", *table(COLUMNS, [_cells(f) for f in members])]
            lines += ["", *(_when(members) if task == "addition" else _text_notes(study))]
    if study["refused"]:
        lines += ["", f"Task 2 was left out: {study['refused']}"]
    return [*lines, "", *_expected(expectations(found), quick=options["quick"]), "", *_published(found)]


def _cells(f: Fitted) -> list[str]:
    last, micros = f.last, f.micros
    if last is None or micros is None:
        return [_label(f), f"{f.learning_rate:g}", f.status, *[MISSING] * 5]
    return [
        _label(f),
        f"{f.learning_rate:g}",
        f"{last.train_loss:.3f}",
        f"{last.test_loss:.3f}",
        f"{last.test_accuracy:.3f}",
        MISSING if f.num_parameters is None else f"{f.num_parameters:,}",
        significant(micros, 3),
        f"{last.seconds:.1f}",
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


def _text_notes(study: Line) -> list[str]:
    marked = "" if study["text"] == "shakespeare" else "NOT Shakespeare but a synthetic text. "
    return [
        marked
        + "Losses in nats. Every model is evaluated on held-out text. The published study evaluated NanoGPT "
        "on a training batch by mistake. Transformers predict at every position of a window, so their losses "
        "include positions with few preceding characters; an MLP always sees 128 characters.",
    ]


def _expected(found: Sequence[Expectation], *, quick: bool) -> list[str]:
    words = {True: "yes", False: "NOT in this run", None: "cannot tell"}
    lines = [[e.expected, e.found, "not judged" if quick else words[e.holds]] for e in found]
    return ["## Is the published story the same here?", "", *table(["expected", "found", "holds"], lines)]


def _published(found: Sequence[Fitted]) -> list[str]:
    ours = {(f.model, f.learning_rate): f for f in found if f.task == "addition"}
    lines = []
    for (model, rate), row in ADDITION.items():
        f = ours.get((model, rate))
        last = f.last if f else None
        lines.append(
            [
                f"{model} {rate:g}",
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
    for column in ("test loss", "accuracy", "µs per example", "seconds"):
        heads += [f"{column}, published", "ours"]
    text = "; ".join(f"{model} {losses}" for model, losses in SHAKESPEARE.items())
    return [
        "## Beside the published table (A100-40GB, 60 s)",
        "",
        *table(heads, lines),
        "",
        f"Published test losses on Shakespeare after 300 s and more: {text}.",
    ]


def _csv(found: Sequence[Fitted]) -> bytes:
    """A line for each training: the study's columns, then further columns."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    levels = [f"{what}_to_{level:g}" for level in LEVELS for what in ("steps", "seconds")]
    writer.writerow([*COLUMNS, "task", "case", "batch", "steps", *levels, "status"])
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
        writer.writerow([f.model, f.learning_rate, *figures, f.task, f.case, f.batch, steps, *when, f.status])
    return text.getvalue().encode()
