"""``--batch-invariant``: whether a row of the outputs depends on its batch, of eager and each candidate."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

from harness.declared import CANDIDATE, EAGER, finite
from runner.analysis.columns import Column, text_column
from runner.analysis.digits import MISSING, share_text
from runner.analysis.results import Result, Summary
from runner.analysis.texts import compiler_name
from runner.names import plain
from runner.reports.parts.ratios import of_job
from runner.reports.parts.view import CONSOLE, HTML, MARKDOWN, View

TITLE = "Batch invariance: outputs of a row, against the same row in the model's own batch"
KINDS = {"row_alone": "alone", "row_company": "in other company"}
WHAT = "equal", "ulp_median", "ulp_99", "ulp_largest"


class Row(NamedTuple):
    """``side``: whose numbers of the result these are."""

    result: Result
    side: str

    def value(self, name: str) -> Any:
        return self.result.record.metrics.get(f"{self.side}{name}")


def _rows(summary: Summary) -> Sequence[Row]:
    """Eager of each job and environment once, then its candidates."""
    rows = dict[tuple[str, ...], Row]()
    for result in summary.comparisons:
        record = result.record
        if f"{EAGER}row_note" in record.metrics:
            rows.setdefault((record.job.key, record.env), Row(result, EAGER))
            rows[record.job.key, record.env, record.candidate] = Row(result, CANDIDATE)
    return [*rows.values()]


def _columns(summary: Summary) -> Iterator[Column[Row]]:
    yield from of_job(summary, lambda row: row.result.record)
    yield text_column("variant", _name)
    for kind, words in KINDS.items():
        yield text_column(words, partial(_cell, kind))


def _name(row: Row) -> str:
    return "eager" if row.side == EAGER else compiler_name(row.result.compiler)


def _cell(kind: str, row: Row) -> str:
    """``all``, or ``97.2 % (ULP 0, 1, 12)``"""
    share, *ulp = (finite(row.value(f"{kind}_{what}")) for what in WHAT)
    if share is None or share == 1.0:
        return MISSING if share is None else "all"
    known = ", ".join(MISSING if value is None else f"{value:,.0f}" for value in ulp)
    return f"{share_text(share)} (ULP {known})"


def _notes(_: Summary, rows: Sequence[Row]) -> Iterator[str]:
    yield "Elements whose bits stay the same; ULP: median, 99 %, largest."
    yield from dict.fromkeys(f"{_name(row)}: {plain(why)}" for row in rows if (why := row.value("row_note")))


ROWS: View[Summary, Row] = View(
    *("rows_alone", _rows, _columns, TITLE),
    group=lambda row: row.result.record.job.key,
    notes=_notes,
    outlets=(CONSOLE, MARKDOWN, HTML),
    folded=0,
)
