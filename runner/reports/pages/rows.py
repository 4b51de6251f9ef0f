"""The rows of report.html's table, with the values for sorting, filters and charts."""

from __future__ import annotations

import math
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from harness.schema import Scalar
from runner.analysis.columns import Column, columns
from runner.analysis.digits import MISSING
from runner.analysis.results import Comparison, Estimate, Summary
from runner.analysis.texts import compiler_name, mean_text
from runner.labels import plain
from runner.reports.pages.overview import KINDS, kind
from runner.reports.parts.grid import Number
from runner.reports.parts.sections import environment_line

ENDLESS = sys.float_info.max  # stands for infinity, which JSON lacks; sorts after all numbers
LEFT_OUT = ("parameters", "input_shapes", "p_value", "worst_error")  # shown in the panel of the case
CONDITIONS = ("suite", "precision", "mode", "device")  # filters that are columns, too
IF_THEY_DIFFER = (*CONDITIONS, "status")  # omitted if all rows have the same


def identities(summary: Summary) -> Iterator[str]:
    """A name for each comparison that stays the same when the report is built again."""
    seen: Counter[str] = Counter()
    for comparison in summary.comparisons:
        name = plain(f"{comparison.record.job.key}/{comparison.record.candidate}")
        seen[name] += 1
        yield name if seen[name] == 1 else f"{name}~{seen[name]}"


def _facets(summary: Summary) -> tuple[Column[Comparison], ...]:
    """The filters. Their names are in the page's address."""
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
    return tuple(Column(name, "text", value, header=name, drop=1) for name, value in values.items())


def table_data(summary: Summary) -> dict[str, Any]:
    """The data that the page reads when it opens: columns, facets with their values, rows, averages."""
    rows, facets = summary.comparisons, _facets(summary)
    model, *others = (c for c in columns().values() if c.header and c.name not in LEFT_OUT)
    every = (model, *(facet for facet in facets if facet.name in CONDITIONS), *others)
    texts = {column: [column.cell(row) for row in rows] for column in (*facets, *every)}
    shown = [column for column in every if not column.drop or _says_something(column, {*texts[column]})]
    values = {facet: [*dict.fromkeys(texts[facet])] for facet in facets}
    places = {facet: {text: place for place, text in enumerate(values[facet])} for facet in facets}
    thresholds = {c.record.job.protocol.noise_threshold for c in rows}
    return {
        "columns": [
            {
                "key": column.name,
                "header": column.header.replace("\n", " "),
                "sorted": column.dtype != "string",  # by its values
                "number": column.is_number,
                "wide": column.drop > 0,  # omitted on a phone
            }
            for column in shown
        ],
        "facets": [{"key": facet.name, "values": values[facet]} for facet in facets],
        "kinds": list(KINDS),
        "threshold": thresholds.pop() if len(thresholds) == 1 else None,
        "rows": [
            {
                "id": name,
                "facets": [places[facet][texts[facet][place]] for facet in facets],
                "texts": [texts[column][place] for column in shown],
                "values": [None if c.dtype == "string" else short(c.value(row)) for c in shown],
                "plot": [short(x) for x in (*_ends(row.estimate), _compile_in_steps(row))],
            }
            for place, (name, row) in enumerate(zip(identities(summary), rows, strict=True))
        ],
        "means": list(_means(summary)),
    }


def _says_something(column: Column[Comparison], texts: set[str]) -> bool:
    return len(texts) > 1 or (texts != {MISSING} and column.name not in IF_THEY_DIFFER)


def _means(summary: Summary) -> Iterator[dict[str, Any]]:
    """The geometric means of the forest plot, with the facets that select them."""
    for group in summary.groups:
        suite, *others = group.place
        if (text := mean_text(group.mean)) != MISSING:
            where = zip(("mode", "precision", "device"), map(plain, others), strict=True)
            facets = {
                "suite": summary.labels[suite],
                "compiler": compiler_name(group.compiler),
                **dict(where),
            }
            plot = [short(x) for x in _ends(group.mean.over)]
            yield {"facets": facets, "models": group.mean.models, "text": text, "plot": plot}


def _ends(estimate: Estimate | None) -> tuple[float | None, float | None, float | None]:
    return (estimate.factor, estimate.low, estimate.high) if estimate else (None, None, None)


def _compile_in_steps(comparison: Comparison) -> float | None:
    """The x of the break-even chart: compilation latency / time of an eager step."""
    if not comparison.compile_s or not comparison.baseline_ms:
        return None
    return comparison.compile_s / (comparison.baseline_ms / 1e3)


def short(value: Scalar) -> Number:
    """Six significant digits, which suffice for charts and sorting."""
    if value is None or isinstance(value, str | int):
        return None if isinstance(value, str) else value
    return float(f"{value:.6g}") if math.isfinite(value) else math.copysign(ENDLESS, value)
