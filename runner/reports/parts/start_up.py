"""The tables of ``--start-up`` and ``--shapes``, as rows of text, for all reports."""

from __future__ import annotations

import math
from functools import partial

from harness.schema import EAGER_START, of_environment
from runner.analysis.digits import MISSING, break_even_text, estimate_text, ms_text, number_text, seconds_text
from runner.analysis.results import TOLD_AFTER, StartForm, Summary
from runner.analysis.texts import compiler_name, status_word
from runner.labels import case_name
from runner.reports.parts.grid import Table, TextColumn, optional, table_of
from runner.reports.parts.pairs import compile_tables, typical_seconds
from runner.reports.parts.sections import conditions_of

TITLE = "Start-up in fresh processes: seconds from the built model to the end of a step"


def process_tables(summary: Summary) -> tuple[Table, ...]:
    """What was measured in fresh processes: compilations, starts, changing shapes."""
    return (*compile_tables(summary), *start_up_tables(summary), *shape_tables(summary))


def start_up_tables(summary: Summary) -> tuple[Table, ...]:
    """() without --start-up."""
    if not summary.start_forms:
        return ()
    labels = summary.labels
    cells: tuple[TextColumn[StartForm], ...] = (
        TextColumn("model", lambda form: case_name(form.comparison.record.job.case), once=True),
        TextColumn("conditions", lambda form: conditions_of(form.comparison.record, labels), once=True),
        TextColumn("from", form_name),
        *(TextColumn(f"step {n}\ns", partial(_after, n), is_number=True) for n in TOLD_AFTER),
        TextColumn("settled\ns", _settled, is_number=True),
        TextColumn(
            "stored\nMB",
            lambda form: optional(form.stored_bytes, lambda size: number_text(size / 1e6, "")),
            is_number=True,
        ),
        TextColumn("overtakes eager\nafter steps", overtaking_text, is_number=True),
        TextColumn("overtakes eager\nafter s", _overtaking_s, is_number=True),
        TextColumn("parity", lambda form: MISSING if form.stored_bytes is None else status_word(form.status)),
        TextColumn("n", lambda form: str(form.n), is_number=True),
    )
    droppable = (
        *("conditions", "n", "settled\ns", "step 10\ns", "stored\nMB", "parity", "step 1\ns"),
        "overtakes eager\nafter s",
    )
    return (
        table_of(TITLE, summary.start_forms, cells, droppable, lambda form: form.comparison.record.job.key),
    )


def form_name(form: StartForm) -> str:
    """``inductor, warm``, ``eager``, or ``eager@old`` with several environments."""
    if form.start != EAGER_START:
        return f"{compiler_name(form.comparison.compiler)}, {form.start}"
    env = form.comparison.record.env
    return of_environment(EAGER_START, env) if env else EAGER_START


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


def _settled(form: StartForm) -> str:
    return f"{seconds_text(form.settled_s.factor)} (step {form.settled_step:.0f})"


# -- changing shapes -----------------------------------------------------------------


def shape_tables(summary: Summary) -> tuple[Table, ...]:
    """() without --shapes."""
    if not summary.shape_forms:
        return ()
    first, labels = summary.shape_forms[0], summary.labels
    shapes = first.comparison.record.job.extras.shapes
    title = f"Changing shapes ({shapes}): {len(first.curve)} calls in fresh processes, compilation included"
    cells: tuple[TextColumn[StartForm], ...] = (
        TextColumn("model", lambda form: case_name(form.comparison.record.job.case), once=True),
        TextColumn("conditions", lambda form: conditions_of(form.comparison.record, labels), once=True),
        TextColumn("compiler", _stream_name),
        TextColumn("total\ns", lambda form: seconds_text(form.curve[-1]), is_number=True),
        TextColumn("speedup\nof the total", lambda form: estimate_text(form.speedup), is_number=True),
        TextColumn(
            "recompi-\nlations", lambda form: optional(form.recompiles, "{:g}".format), is_number=True
        ),
        TextColumn("later calls\nms", lambda form: ms_text(1e3 * form.step_s), is_number=True),
        TextColumn("parity", lambda form: MISSING if form.start == EAGER_START else status_word(form.status)),
        TextColumn("n", lambda form: str(form.n), is_number=True),
    )
    droppable = ("conditions", "n")
    return (
        table_of(title, summary.shape_forms, cells, droppable, lambda form: form.comparison.record.job.key),
    )


def _stream_name(form: StartForm) -> str:
    return EAGER_START if form.start == EAGER_START else compiler_name(form.comparison.compiler)
