"""The rows of report.html's table, with the values for sorting, filters and charts."""

from __future__ import annotations

import math
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

from harness.schema import Scalar
from runner.analysis.columns import columns as all_columns
from runner.analysis.digits import MISSING
from runner.analysis.estimate import Estimate
from runner.analysis.results import Comparison, Summary
from runner.analysis.texts import compiler_name, mean_text
from runner.labels import plain
from runner.reports.pages.overview import KINDS, kind
from runner.reports.parts.grid import Number
from runner.reports.parts.sections import environment_line

ENDLESS = sys.float_info.max  # stands for infinity, which JSON lacks; sorts after all numbers

HEADERS = MappingProxyType({"compiler": "compiler", "status": "status"})
LEFT_OUT = ("parameters", "input_shapes", "p_value", "worst_error")  # shown in the panel of the case
ON_A_PHONE = ("model", "compiler", "speedup", "verdict")
FACET_COLUMNS = ("suite", "precision", "mode", "device")  # shown if the run has several values


Facets = dict[str, list[str]]
"""The filters: the value of each comparison, by a name for the page and its address."""


class PageColumn(NamedTuple):
    """A column. ``values``: sort keys; without them, texts are the keys."""

    key: str
    header: str
    texts: Sequence[str]
    values: Sequence[Number] | None = None


def identities(summary: Summary) -> tuple[str, ...]:
    """A name for each comparison that stays the same when the report is built again."""
    seen: Counter[str] = Counter()
    names = []
    for comparison in summary.comparisons:
        name = plain(f"{comparison.record.job.key}/{comparison.record.candidate}")
        seen[name] += 1
        names.append(name if seen[name] == 1 else f"{name}~{seen[name]}")
    return tuple(names)


def facets(summary: Summary) -> Facets:
    labels = summary.labels
    values: Mapping[str, Callable[[Comparison], str]] = {
        "suite": lambda c: labels[c.record.job.case.suite],
        "compiler": lambda c: compiler_name(c.compiler),
        "precision": lambda c: plain(c.record.job.dtype),
        "mode": lambda c: c.record.job.case.mode.value,
        "device": lambda c: plain(c.device),
        "scale": lambda c: plain(c.record.job.case.scale),
        "environment": lambda c: environment_line(c.record.environment),
        "verdict": kind,
        "status": lambda c: c.record.status.value,
    }
    return {key: [value(c) for c in summary.comparisons] for key, value in values.items()}


def columns(summary: Summary, used: Facets) -> tuple[PageColumn, ...]:
    """The table's columns, without empty columns and without conditions that have a single value."""
    first, *others = (
        PageColumn(
            column.name,
            HEADERS.get(column.name, column.header.replace("\n", " ")),
            [column.cell(c) for c in summary.comparisons],
            None if column.dtype == "string" else [_short(column.value(c)) for c in summary.comparisons],
        )
        for column in all_columns().values()
        if column.header and column.name not in LEFT_OUT
    )
    conditions = (PageColumn(key, key, used[key]) for key in FACET_COLUMNS if len(set(used[key])) > 1)
    return (first, *conditions, *(c for c in others if c.key in ON_A_PHONE or _says_something(c)))


def _says_something(column: PageColumn) -> bool:
    """Whether the column is shown: it is not empty, and it is not a status that all rows share."""
    texts = set(column.texts)
    return len(texts) > 1 or (texts != {MISSING} and column.key != "status")


def table_data(summary: Summary) -> dict[str, Any]:
    """The data that the page reads when it opens: columns, facets with their values, rows, averages."""
    used = facets(summary)
    shown = columns(summary, used)
    values = {key: list(dict.fromkeys(texts)) for key, texts in used.items()}
    places = {key: {text: place for place, text in enumerate(texts)} for key, texts in values.items()}
    thresholds = {c.record.job.protocol.noise_threshold for c in summary.comparisons}
    return {
        "columns": [
            {
                "key": c.key,
                "header": c.header,
                "number": c.values is not None,
                "wide": c.key not in ON_A_PHONE,  # omitted on a phone
            }
            for c in shown
        ],
        "facets": [{"key": key, "values": texts} for key, texts in values.items()],
        "kinds": list(KINDS),
        "threshold": thresholds.pop() if len(thresholds) == 1 else None,
        "rows": [
            {
                "id": name,
                "facets": [places[key][texts[row]] for key, texts in used.items()],
                "texts": [column.texts[row] for column in shown],
                "values": [column.values[row] if column.values else None for column in shown],
                "plot": [_short(x) for x in (*_ends(c.estimate), _compile_in_steps(c))],
            }
            for row, (name, c) in enumerate(zip(identities(summary), summary.comparisons, strict=True))
        ],
        "means": list(_means(summary)),
    }


def _means(summary: Summary) -> Iterator[dict[str, Any]]:
    """The geometric means of the forest plot, with the facets that select them."""
    labels = summary.labels
    for group in summary.groups:
        if (text := mean_text(group.mean)) != MISSING:
            yield {
                "facets": {
                    "suite": labels[group.place.suite],
                    "compiler": compiler_name(group.compiler),
                    "precision": plain(group.place.dtype),
                    "mode": group.place.mode,
                    "device": plain(group.place.device),
                },
                "models": group.mean.models,
                "text": text,
                "plot": [_short(x) for x in _ends(group.mean.over)],
            }


def _ends(estimate: Estimate | None) -> tuple[float | None, float | None, float | None]:
    return (estimate.factor, estimate.low, estimate.high) if estimate else (None, None, None)


def _compile_in_steps(comparison: Comparison) -> float | None:
    """The x of the break-even chart: compilation latency / time of an eager step."""
    if not comparison.compilation_latency_s or not comparison.baseline_ms:
        return None
    return comparison.compilation_latency_s / (comparison.baseline_ms / 1e3)


def _short(value: Scalar) -> Number:
    """Six significant digits, which suffice for charts and sorting."""
    if value is None or isinstance(value, str | int):
        return None if isinstance(value, str) else value
    return float(f"{value:.6g}") if math.isfinite(value) else math.copysign(ENDLESS, value)
