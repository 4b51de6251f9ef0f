"""The numerics cards (``--numerics``): of eager's controls, and of each candidate."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from types import MappingProxyType

from harness.schema import Numerics
from runner.analysis.columns import NUMERICS as GROUP
from runner.analysis.columns import Column, own_columns
from runner.analysis.digits import MISSING, share_text
from runner.analysis.results import Result, Summary
from runner.analysis.texts import compiler_name
from runner.reports.parts.ratios import of_job
from runner.reports.parts.view import View

TITLE = "Numerics of the first call: distance from eager's, and from fp64"
NOTE = (
    "The first rows of a model are controls: how far eager itself is from its first call. docs/NUMERICS.md "
    "defines the columns."
)
NEARLY_ALL = 0.999  # the largest share that a text gives to less than all


def _share(share: float | None) -> str:
    if share is None:
        return MISSING
    return share_text(share if share == 1.0 else min(share, NEARLY_ALL))


def _several(*values: float | None) -> str:
    texts = [MISSING if value is None else f"{value:.3g}" for value in values]
    return MISSING if values[0] is None else ", ".join(texts)


def _decibels(own: float | None, *others: float | None) -> str:
    texts = [MISSING if value is None else f"{value:.0f}" for value in others]
    return MISSING if own is None else f"{own:.0f} ({', '.join(texts)})"


def _millions(card: Numerics) -> str:
    seen, of = (f"{count / 1e6:.3g}" for count in (card.elements, card.elements_of))
    return seen if card.elements == card.elements_of else f"{seen} of {of}"


Shown = tuple[str, int, Callable[[Numerics], str]]
SHOWN: Mapping[str, Shown] = MappingProxyType(
    {
        "bit_equal": ("bits equal\nto eager's", 0, lambda n: _share(n.bit_equal)),
        "tensors_bit_equal": ("of\ntensors", 3, lambda n: f"{n.tensors_equal}/{n.tensors}"),
        "ulp_median": (
            *("ULP: median,\n99 %, largest", 0),
            lambda n: _several(n.ulp_median, n.ulp_99, n.ulp_largest),
        ),
        "sqnr_db": (
            *("SQNR dB (eager,\nnoisy eager)", 0),
            lambda n: _decibels(n.sqnr_db, n.eager_sqnr_db, n.noisy_sqnr_db),
        ),
        "nearer_to_fp64": ("nearer\nto fp64", 2, lambda n: n.nearer or MISSING),
        "cosine": ("cosine", 6, lambda n: MISSING if n.cosine is None else f"{n.cosine:.6f}"),
        "top_1": ("top-1", 1, lambda n: _share(n.top_1)),
        "log_prob_mean": (
            "log p: mean,\nlargest",
            4,
            lambda n: _several(n.log_prob_mean, n.log_prob_largest),
        ),
        "kl": ("KL\nnats", 5, lambda n: _several(n.kl)),
        "numerics_elements": ("elements\nM", 0, _millions),
    }
)
"""The columns that tables show: header, ``Column.drop``, text."""


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


def _cell(text: Callable[[Numerics], str], card: Result) -> str:
    return MISSING if card.record.numerics is None else text(card.record.numerics)


def _columns(summary: Summary) -> Iterator[Column[Result]]:
    yield from of_job(summary, lambda card: card.record)
    yield Column("run", "text", _run, "run")
    for column in own_columns():
        if column.group == GROUP:
            header, drop, text = SHOWN.get(column.name, ("", 0, None))
            yield replace(column, header=header, drop=drop, text=text and partial(_cell, text))


NUMERICS: View[Summary, Result] = View(
    *("numerics", _cards, _columns, TITLE),
    group=lambda card: card.record.job.key,
    notes=lambda *_: [NOTE],
)
