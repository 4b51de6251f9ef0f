"""summary.json: the derived values of a run, for programs. The samples are in records.jsonl.

One object: ``schema_version`` (of this file), ``record_schema_versions``, ``environment``,
``comparisons`` (one for each record, in plan order), ``groups`` (averages), ``warnings``, ``caveats``.
A run in several environments also has ``environments`` and ``environment_averages``.
Names contain the units. A missing number is null; an infinite number is "inf".
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields
from functools import cache
from typing import Any

from harness.codec import to_json
from harness.declared import NOISE, WORK
from harness.metrics import declared
from runner.analysis.columns import RESULT, Column, columns
from runner.analysis.comparison import (
    CandidatePair,
    Comparison,
    CompilePair,
    CompileStart,
    Curve,
    EnvironmentAverage,
    Generation,
    GroupSummary,
    StartForm,
    Summary,
)
from runner.analysis.estimate import Geomean
from runner.labels import notes_of, ran_batch

FORMATS = ("json",)
FILE = "summary.json"
# History of this file's format:
#   1  2026-11  first version
SCHEMA_VERSION = 1
OF_GROUP = ("compiler", "suite", "mode", "device", "dtype", "total", "passed", "pass_share")
OF_AVERAGE = ("environment", "versions", "compiler", "suite", "mode", "device", "dtype", "total")
OF_ENVIRONMENT = ("speedup", "ci_low", "ci_high", "p_value", "q_value", "verdict", "same_results", "counts")
OF_PART = ("baseline_ms", "candidate_ms", "speedup", "ci_low", "ci_high")
OF_PAIR = ("speedup", "ci_low", "ci_high", "p_value", "q_value", "verdict")


def render(summary: Summary) -> Mapping[str, bytes]:
    content = {
        "schema_version": SCHEMA_VERSION,
        "record_schema_versions": sorted({c.record.schema_version for c in summary.comparisons}),
        "environment": summary.environment,
        "groups": [_group(group) for group in summary.groups],
        "warnings": to_json(summary.warnings),
        "caveats": summary.caveats,
        **_environments(summary),
        "pairs": [_pair(pair) for pair in summary.pairs],
        "compiler_ratios": summary.ratios,
        "compile_starts": [_compile_start(row) for row in summary.compile_starts],
        "compile_pairs": [_compile_pair(pair) for pair in summary.compile_pairs],
        "start_forms": [_form(form) for form in summary.start_forms],
        "shape_forms": [_form(form) for form in summary.shape_forms],
        "curves": [_curve(curve) for curve in summary.curves],
        "comparisons": [],
    }
    head, tail = json.dumps(to_json(content), indent=1, allow_nan=False).rsplit("[]", 1)
    # one comparison on each line: json with indents takes ten times as long
    lines = (json.dumps(to_json(_comparison(c)), allow_nan=False).encode() for c in summary.comparisons)
    body = b",\n  ".join(lines)
    return {FILE: b"%b[\n  %b\n ]%b\n" % (head.encode(), body, tail.encode())}


def _environments(summary: Summary) -> dict[str, Any]:
    """Each candidate relative to eager of the reference; empty without ``--envs``."""
    if not summary.across:
        return {}
    rows = [
        {
            "job": c.record.job.key,
            "candidate": c.record.candidate,
            "torch": c.record.environment.get("torch"),
            "parity": c.record.env_parity,
            "environment": c.environment,
            "reference": c.reference,
            "compiler": c.compiler,
            "n": c.n,
            "reference_ms": c.baseline_ms,
            "ms": c.candidate_ms,
            **{name: getattr(c, name) for name in OF_ENVIRONMENT},
            "open_because": c.open and c.open.reason,
        }
        for c in summary.across
    ]
    return {"environments": rows, "environment_averages": [*map(_average, summary.across_averages)]}


def _pair(pair: CandidatePair) -> dict[str, Any]:
    """The first candidate over the second, from the rounds that timed both."""
    return {
        "job": pair.first.record.job.key,
        "first": pair.first.record.candidate,
        "second": pair.second.record.candidate,
        "n": pair.n,
        **{name: getattr(pair, name) for name in OF_PAIR},
        "open_because": pair.open and pair.open.reason,
    }


def _compile_start(row: CompileStart) -> dict[str, Any]:
    """Geometric means of several compilations of a candidate, with the interval of their time."""
    return {
        "job": row.comparison.record.job.key,
        "candidate": row.comparison.record.candidate,
        "start": row.start,
        "n": row.n,
        "ci_low": row.time.low,
        "ci_high": row.time.high,
        **row.means,
    }


def _compile_pair(pair: CompilePair) -> dict[str, Any]:
    """Compilations of two candidates, or of one from cold and warm caches, in the same rounds."""
    return {
        "job": pair.first.record.job.key,
        "first": pair.first.record.candidate,
        "first_start": pair.first_start,
        "second": pair.second.record.candidate,
        "second_start": pair.second_start,
        "ratio": pair.ratio.factor,
        "ci_low": pair.ratio.low,
        "ci_high": pair.ratio.high,
        "p_value": pair.ratio.p_value,
        "q_value": pair.q_value,
        "verdict": pair.verdict,
        "needed": pair.needed,
    }


def _form(form: StartForm) -> dict[str, Any]:
    """The fields of a form of the start-up race, or of a stream of shapes, but its curve: records have it."""
    values = {field.name: getattr(form, field.name) for field in fields(form)[1:] if field.name != "curve"}
    values["after"] = {str(step): seconds for step, seconds in form.after.items()}
    return {"job": form.comparison.record.job.key, "candidate": form.comparison.record.candidate, **values}


def _curve(curve: Curve) -> dict[str, Any]:
    """The jobs of a candidate over an axis, the values that count, and where its speedup crosses 1."""
    return {
        "axis": curve.axis,
        "candidate": curve.comparisons[0].record.candidate,
        "jobs": [comparison.record.job.key for comparison in curve.comparisons],
        "points": [*curve.points],
        "crossovers": curve.crossovers,
    }


def _generation(generation: Generation) -> dict[str, Any]:
    parts = {"prefill": generation.prefill, "decode": generation.decode}
    values = {name: part and {key: getattr(part, key) for key in OF_PART} for name, part in parts.items()}
    rates = ("baseline_tokens_per_s", "candidate_tokens_per_s")
    return {**values, **{name: getattr(generation, name) for name in rates}}


def _group(group: GroupSummary) -> dict[str, Any]:
    """The fields of the group, with ``mean_<metric>`` and the number of models instead of ``means``."""
    means: dict[str, Any] = {}
    for metric in declared().averages():
        assert metric.average is not None
        mean = group.means[metric.name]
        means |= {f"{metric.average.key}_n": mean.n, f"mean_{metric.name}": mean.value}
    return {
        **{name: getattr(group, name) for name in OF_GROUP},
        **_mean(group.mean),
        **means,
        "verdicts": group.verdicts,
        "checked": group.checked,
        "these_low": group.mean.these_low,
        "these_high": group.mean.these_high,
        "pass_low": group.pass_low,
        "pass_high": group.pass_high,
        "judged_finely": group.judged.value,
        "judged_models": group.judged.n,
        "common_models": group.common.models,
        "common_geomean": group.common.value,
        "common_low": group.common.low,
        "common_high": group.common.high,
        **{name: getattr(group, name) for name in ("break_even", "system", "allocator")},
    }


def _average(average: EnvironmentAverage) -> dict[str, Any]:
    return {**{name: getattr(average, name) for name in OF_AVERAGE}, **_mean(average.mean)}


def _mean(mean: Geomean) -> dict[str, Any]:
    names = ("averaged", "geomean_speedup", "geomean_low", "geomean_high")
    return dict(zip(names, (mean.models, mean.value, mean.low, mean.high), strict=True))


@cache
def of_comparison() -> tuple[Column[Comparison], ...]:
    """The columns that no other part of the comparison has: the result, and derived metrics."""
    derived = {name for metric in declared().metrics if metric.derive for name in metric.names}
    derived.add("compilation_latency_s")  # users look for it beside the speedup
    return tuple(
        column
        for column in columns().values()
        if column.group == RESULT or (column.name in derived and column.group not in (WORK, NOISE))
    )


def _comparison(comparison: Comparison) -> dict[str, Any]:
    """The job, the status, the derived numbers, then parity, metrics and failure."""
    record = comparison.record
    job, case = record.job, record.job.case
    return {
        "job": job.key,
        "suite": case.suite,
        "model": case.name,
        "mode": case.mode,
        "device": job.device,
        "dtype": job.dtype,
        "candidate": record.candidate,
        "scale": case.scale,
        "changes": case.changes,
        "batch_size": ran_batch(record),
        "published_batch_size": case.published_batch_size,
        "compiler": comparison.compiler,
        **{column.name: column.value(comparison) for column in of_comparison()},
        "work": comparison.work,
        "noise": comparison.noise,
        "generation": comparison.generation and _generation(comparison.generation),
        "parity": record.parity,
        "metrics": record.metrics,
        "failure": record.failure,
        "notes": notes_of(record),
        "reproduce": record.reproduce,
        "started": record.started,
        "ended": record.ended,
    }
