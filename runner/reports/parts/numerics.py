"""The numerics cards (``--numerics``): of eager's controls, and of each candidate."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from types import MappingProxyType

from runner.analysis.columns import NUMERICS as GROUP
from runner.analysis.columns import Column, own_columns
from runner.analysis.results import Result, Summary
from runner.analysis.texts import compiler_name
from runner.reports.parts.ratios import of_job
from runner.reports.parts.view import View

TITLE = "Numerics of the first call: distance from eager's, and from fp64"
NOTE = (
    "The first rows of a model are controls: how far eager itself is from its first call. docs/NUMERICS.md "
    "defines the columns."
)
SHOWN: Mapping[str, tuple[str, int]] = MappingProxyType(
    {
        "bit_equal": ("bits\nequal", 0),
        "tensors_bit_equal": ("of\ntensors", 3),
        "ulp_median": ("ULP\nmedian", 0),
        "ulp_99": ("ULP\n99 %", 0),
        "ulp_largest": ("ULP\nlargest", 0),
        "sqnr_db": ("SQNR\ndB", 0),
        "eager_sqnr_db": ("eager\ndB", 4),
        "noisy_sqnr_db": ("noisy\ndB", 5),
        "cosine": ("cosine", 8),
        "nearer_to_fp64": ("nearer\nto fp64", 2),
        "top_1": ("top-1", 1),
        "log_prob_mean": ("log p\nmean", 7),
        "log_prob_largest": ("log p\nlargest", 6),
        "kl": ("KL\nnats", 5),
        "numerics_elements": ("elements", 0),
        "numerics_elements_of": ("of", 0),
    }
)
"""The columns that tables show: header and ``Column.drop``."""


def _cards(summary: Summary) -> list[Result]:
    """A result for each card: the controls of a worker, then its candidates."""
    cards, told = list[Result](), set[tuple[str, str]]()
    for result in summary.comparisons:
        record = result.record
        place = record.job.key, record.env
        controls = () if place in told else record.numerics_controls
        told |= {place} if controls else set()
        own = (record.numerics,) if record.numerics else ()
        cards += (replace(result, record=replace(record, numerics=card)) for card in (*controls, *own))
    return cards


def _run(card: Result) -> str:
    record = card.record
    if record.numerics is not None and record.numerics in record.numerics_controls:
        return f"{record.numerics.run}@{record.env}" if record.env else record.numerics.run
    return compiler_name(card.compiler)


def _columns(summary: Summary) -> Iterator[Column[Result]]:
    yield from of_job(summary, lambda card: card.record)
    yield Column("run", "text", _run, "run")
    for column in own_columns():
        if column.group == GROUP:
            header, drop = SHOWN.get(column.name, ("", 0))
            yield replace(column, header=header, drop=drop)


NUMERICS: View[Summary, Result] = View(
    *("numerics", _cards, _columns, TITLE), group=lambda card: card.record.job.key, notes=lambda *_: [NOTE]
)
