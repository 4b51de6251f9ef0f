"""The table of ``--shapes``, as rows of text, for all reports."""

from __future__ import annotations

from harness.schema import EAGER_START
from runner.analysis.comparison import ShapeForm, Summary
from runner.analysis.digits import MISSING, ms_text, number_text, seconds_text, speedup_text
from runner.analysis.estimate import Typical
from runner.labels import case_name
from runner.reports.parts.grid import Table, TextColumn, optional, table_of
from runner.reports.parts.start_up import form_name, typical_seconds

NEVER = "not in the stream"


def shape_tables(summary: Summary) -> tuple[Table, ...]:
    """() without --shapes."""
    if not summary.shape_forms:
        return ()
    first = summary.shape_forms[0]
    job = first.comparison.record.job
    title = (
        f"Changing shapes ({job.extras.shapes}, seed {job.protocol.seed}): {first.calls} calls in fresh "
        "processes, compilation included"
    )
    cells: tuple[TextColumn[ShapeForm], ...] = (
        TextColumn("model", lambda form: case_name(form.comparison.record.job.case), once=True),
        TextColumn("strategy", form_name),
        TextColumn("total\ns", lambda form: typical_seconds(form.total), number=True),
        TextColumn("speedup\nof the total", lambda form: optional(form.speedup, _speedup), number=True),
        TextColumn("recompi-\nlations", lambda form: optional(form.recompiles, "{:g}".format), number=True),
        TextColumn("eager\ncalls", lambda form: optional(form.eager_calls, "{:g}".format), number=True),
        TextColumn("compiling\ns", lambda form: optional(form.compile_s, seconds_text), number=True),
        TextColumn("first 10\ns", lambda form: seconds_text(form.first_s), number=True),
        TextColumn("later calls\nms", lambda form: ms_text(form.settled_ms), number=True),
        TextColumn("overtakes eager\nafter calls", _overtakes, number=True),
        TextColumn("parity", lambda form: MISSING if form.start == EAGER_START else form.status.value),
        TextColumn("n", lambda form: str(form.n), number=True),
    )
    droppable = ("n", "first 10\ns", "compiling\ns", "overtakes eager\nafter calls")
    return (
        table_of(title, summary.shape_forms, cells, droppable, lambda form: form.comparison.record.job.key),
    )


def _speedup(ratio: Typical) -> str:
    return speedup_text(ratio.value, ratio.low, ratio.high)


def _overtakes(form: ShapeForm) -> str:
    if form.start == EAGER_START:
        return MISSING
    return NEVER if form.overtakes is None else number_text(form.overtakes, "")
