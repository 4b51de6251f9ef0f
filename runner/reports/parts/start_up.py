"""The start-up race and the streams of changing shapes: what ran in fresh processes."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import partial

from harness.schema import EAGER_START, eager_of
from runner.analysis.columns import JSON, Column, text_column, values
from runner.analysis.digits import MISSING, break_even_text, estimate_text, ms_text, number_text, seconds_text
from runner.analysis.results import TOLD_AFTER, StartForm, Summary
from runner.analysis.texts import compiler_name, status_word, typical_parts, typical_seconds
from runner.reports.parts.grid import optional
from runner.reports.parts.ratios import of_job
from runner.reports.parts.view import Part, View

TITLE = "Start-up in fresh processes: seconds from the built model to the end of a step"


_number = partial(Column, "", "", "")  # at the right, as its digits are


def _both(summary: Summary) -> Iterator[Column[StartForm]]:
    """What tables of both begin with, and what both have for programs only."""
    yield from of_job(summary, lambda form: form.comparison.record)
    yield from values("text", "candidate", of="comparison.record.")
    yield from values("text", "start", "status", "failure")
    yield Column("after", JSON, lambda form: {f"{n}": typical_parts(time) for n, time in form.after.items()})
    yield Column("settled_s", JSON, lambda form: typical_parts(form.settled_s))
    yield Column("speedup", JSON, lambda form: typical_parts(form.speedup))
    yield from values(JSON, "settled_step", "step_s", "overtaking", "stored_bytes", "recompiles")


def _start_columns(summary: Summary) -> Iterator[Column[StartForm]]:
    yield from _both(summary)
    yield text_column("from", form_name)
    for number, drop in zip(TOLD_AFTER, (2, 5, 0), strict=True):
        yield _number(f"step {number}\ns", partial(_after, number), drop)
    yield _number(
        "settled\ns", lambda form: f"{seconds_text(form.settled_s.factor)} (step {form.settled_step:.0f})", 6
    )
    yield _number(
        "stored\nMB", lambda form: optional(form.stored_bytes, lambda size: number_text(size / 1e6, "")), 4
    )
    yield _number("overtakes eager\nafter steps", overtaking_text, drop=0)
    yield _number("overtakes eager\nafter s", _overtaking_s, drop=1)
    yield text_column(
        "parity", lambda form: MISSING if form.stored_bytes is None else status_word(form.status), drop=3
    )
    yield Column("n", "", "n", header="n", drop=7)


def _shape_columns(summary: Summary) -> Iterator[Column[StartForm]]:
    yield from _both(summary)
    yield text_column("compiler", lambda form: form_name(form).removesuffix(f", {form.start}"))
    yield _number("total\ns", lambda form: seconds_text(form.curve[-1]))
    yield _number("speedup\nof the total", lambda form: estimate_text(form.speedup))
    yield _number("recompi-\nlations", lambda form: optional(form.recompiles, "{:g}".format))
    yield _number("later calls\nms", lambda form: ms_text(1e3 * form.step_s))
    yield text_column(
        "parity", lambda form: MISSING if form.start == EAGER_START else status_word(form.status)
    )
    yield Column("n", "", "n", header="n", drop=1)


def form_name(form: StartForm) -> str:
    """``inductor, warm``, ``eager``, or ``eager@old`` with several environments."""
    if form.start != EAGER_START:
        return f"{compiler_name(form.comparison.compiler)}, {form.start}"
    return eager_of(form.comparison.record.env)


def overtaking_text(form: StartForm) -> str:
    """``9 [8, 10]``; computed, beyond the steps of the race: ``about 5,500``; ``over 1,200``; ``never``."""
    known = form.overtaking
    if known is None:
        return MISSING
    text = break_even_text(known.after)
    return text if known.measured or not text[0].isdigit() else f"about {text}"


def _overtaking_s(form: StartForm) -> str:
    known = form.overtaking
    return MISSING if known is None or math.isinf(known.seconds) else seconds_text(known.seconds)


def _after(number: int, form: StartForm) -> str:
    return optional(form.after.get(number), typical_seconds)


def _shapes(summary: Summary) -> Iterator[Part[StartForm]]:
    for first in summary.shape_forms[:1]:
        shapes = first.comparison.record.job.extras.shapes
        calls = f"{len(first.curve)} calls in fresh processes, compilation included"
        yield f"Changing shapes ({shapes}): {calls}", summary.shape_forms


def _job(form: StartForm) -> str:
    return form.comparison.record.job.key


START_UP: tuple[View[Summary, StartForm], ...] = (
    View(*("start_forms", lambda summary: summary.start_forms, _start_columns, TITLE), group=_job, folded=0),
    View(
        *("shape_forms", lambda summary: summary.shape_forms, _shape_columns),
        parts=_shapes,
        group=_job,
        folded=0,
    ),
)
