"""The rows of report.html's table, each with what sorts, filters and draws it."""

from __future__ import annotations

import math
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from runner.comparison import Comparison, GroupSummary, Summary
from runner.digits import MISSING, speedup_text
from runner.labels import plain, ran_batch, suite_labels
from runner.reports._sections import compiler_name, environment_line
from runner.reports._table import COLUMNS

NOT_COUNTED = "not counted"  # no verdict, or one that counts for nothing because parity failed
ENDLESS = sys.float_info.max  # JSON has no infinity; sorts behind every number
Number = float | int | None

# By what a column of numbers sorts; the others sort by their text.
SORTED_BY: Mapping[str, Callable[[Comparison], Number]] = MappingProxyType(
    {
        "batch": lambda c: ran_batch(c.record),
        "eager_ms": lambda c: c.baseline_ms,
        "ms": lambda c: c.candidate_ms,
        "speedup": lambda c: c.speedup,
        "q": lambda c: c.q_value,
        "compile": lambda c: c.compilation_latency_s,
        "memory": lambda c: c.memory_ratio,
        "break_even": lambda c: c.break_even_steps,
        "n": lambda c: c.n or None,
    }
)
HEADERS = MappingProxyType({"candidate": "compiler", "parity": "status"})
LEFT_OUT = ("parameters", "input", "p", "worst")  # the case's own panel has them
ON_A_PHONE = ("model", "candidate", "speedup", "verdict")
FACET_COLUMNS = ("suite", "precision", "mode", "device")  # shown where they differ


@dataclass(frozen=True, slots=True, kw_only=True)
class Facet:
    """Something to filter by: ``key`` is its name in the page's address and on the page.

    ``texts``: what each comparison has.
    """

    key: str
    texts: Sequence[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """A column. ``values`` are what sorts; without them the texts do. ``wide``: left out on a phone."""

    key: str
    header: str
    texts: Sequence[str]
    values: Sequence[Number] | None = None
    wide: bool = True


def kind(comparison: Comparison) -> str:
    """The verdict where it counts, else ``NOT_COUNTED``."""
    if comparison.verdict is None or not comparison.record.status.passed:
        return NOT_COUNTED
    return comparison.verdict.value


def identities(summary: Summary) -> tuple[str, ...]:
    """A name for each comparison that stays the same when the report is built again."""
    seen: Counter[str] = Counter()
    names = []
    for comparison in summary.comparisons:
        name = plain(f"{comparison.record.job.key}/{comparison.record.candidate}")
        seen[name] += 1
        names.append(name if seen[name] == 1 else f"{name}~{seen[name]}")
    return tuple(names)


def facets(summary: Summary) -> tuple[Facet, ...]:
    labels = suite_labels(c.record.job.case.suite for c in summary.comparisons)
    environments = {id(c.record.environment): c.record.environment for c in summary.comparisons}
    lines = {place: environment_line(facts) for place, facts in environments.items()}
    values: Mapping[str, Callable[[Comparison], str]] = {
        "suite": lambda c: labels[c.record.job.case.suite],
        "compiler": lambda c: compiler_name(c.compiler),
        "precision": lambda c: plain(c.record.job.dtype),
        "mode": lambda c: c.record.job.case.mode.value,
        "device": lambda c: plain(c.device),
        "scale": lambda c: plain(c.record.job.case.scale),
        "environment": lambda c: lines[id(c.record.environment)],
        "verdict": kind,
        "status": lambda c: c.record.status.value,
    }
    return tuple(
        Facet(key=key, texts=[value(c) for c in summary.comparisons]) for key, value in values.items()
    )


def columns(summary: Summary, used: Sequence[Facet]) -> tuple[Shown, ...]:
    """The table's columns; one that holds nothing, or one and the same suite or device, is left out."""
    conditions = [
        Shown(key=facet.key, header=facet.key, texts=facet.texts)
        for facet in used
        if facet.key in FACET_COLUMNS and len(set(facet.texts)) > 1
    ]
    own = []
    for column in COLUMNS:
        if column.key in LEFT_OUT:
            continue
        texts = [column.cell(c) for c in summary.comparisons]
        if not (column.key in ON_A_PHONE or _says_something(column.key, set(texts))):
            continue
        value = SORTED_BY.get(column.key)
        own.append(
            Shown(
                key=column.key,
                header=HEADERS.get(column.key, column.header.replace("\n", " ")),
                texts=texts,
                values=[_short(value(c)) for c in summary.comparisons] if value else None,
                wide=column.key not in ON_A_PHONE,
            )
        )
    return (own[0], *conditions, *own[1:])


def _says_something(key: str, texts: set[str]) -> bool:
    """Whether a column of these cells is worth its room: a status that all share is not."""
    return len(texts) > 1 or (texts != {MISSING} and key != "parity")


def table_data(summary: Summary) -> dict[str, Any]:
    """What the page reads when it opens: columns, facets with their values, rows, averages."""
    used = facets(summary)
    shown = columns(summary, used)
    values = {facet.key: list(dict.fromkeys(facet.texts)) for facet in used}
    places = {key: {value: place for place, value in enumerate(found)} for key, found in values.items()}
    thresholds = {c.record.job.protocol.noise_threshold for c in summary.comparisons}
    return {
        "columns": [
            {"key": c.key, "header": c.header, "number": c.values is not None, "wide": c.wide} for c in shown
        ],
        "facets": [{"key": f.key, "values": values[f.key]} for f in used],
        "threshold": thresholds.pop() if len(thresholds) == 1 else None,
        "rows": [
            {
                "id": name,
                "facets": [places[f.key][f.texts[row]] for f in used],
                "texts": [column.texts[row] for column in shown],
                "values": [column.values[row] if column.values else None for column in shown],
                "plot": [_short(x) for x in (c.speedup, c.ci_low, c.ci_high, _compile_in_steps(c))],
            }
            for row, (name, c) in enumerate(zip(identities(summary), summary.comparisons, strict=True))
        ],
        "means": list(_means(summary)),
    }


def _means(summary: Summary) -> Iterator[dict[str, Any]]:
    """The geometric means as the forest plot has them, with the facets that pick them."""
    labels = suite_labels(c.record.job.case.suite for c in summary.comparisons)
    for group in summary.groups:
        if group.geomean_speedup is not None:
            yield {
                "facets": {
                    "suite": labels[group.suite],
                    "compiler": compiler_name(group.compiler),
                    "precision": plain(group.dtype),
                    "mode": group.mode,
                    "device": plain(group.device),
                },
                "models": group.averaged,
                "text": mean_text(group),
                "plot": [_short(x) for x in (group.geomean_speedup, group.geomean_low, group.geomean_high)],
            }


def mean_text(group: GroupSummary) -> str:
    if group.geomean_speedup is None:
        return MISSING
    return speedup_text(group.geomean_speedup, group.geomean_low, group.geomean_high)


def _compile_in_steps(comparison: Comparison) -> float | None:
    """Where a point stands on the break-even chart: compilation counted in eager steps."""
    if not comparison.compilation_latency_s or not comparison.baseline_ms:
        return None
    return comparison.compilation_latency_s / (comparison.baseline_ms / 1e3)


def _short(value: Number) -> Number:
    """Six significant digits: more than any chart or sorting needs."""
    if value is None or isinstance(value, int):
        return value
    return float(f"{value:.6g}") if math.isfinite(value) else math.copysign(ENDLESS, value)
