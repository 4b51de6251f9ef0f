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
from runner.analysis.estimate import Estimate, Mean
from runner.analysis.results import (
    COMPILATIONS,
    PAIRS,
    REFERENCE,
    Average,
    Comparison,
    CompileStart,
    Curve,
    GroupSummary,
    Ratio,
    StartForm,
    Summary,
    same_results,
)
from runner.labels import notes_of, ran_batch
from runner.reports.parts.environments import versions

FORMATS = ("json",)
FILE = "summary.json"
# History of this file's format:
#   1  2026-11  first version
SCHEMA_VERSION = 1
OF_GROUP = ("compiler", "total", "passed", "pass_share")
OF_PART = ("baseline_ms", "candidate_ms", "speedup", "ci_low", "ci_high")


def render(summary: Summary) -> Mapping[str, bytes]:
    content = {
        "schema_version": SCHEMA_VERSION,
        "record_schema_versions": sorted({c.record.schema_version for c in summary.comparisons}),
        "environment": summary.environment,
        "groups": [_group(group) for group in summary.groups],
        "warnings": to_json(summary.warnings),
        "caveats": summary.caveats,
        **_environments(summary),
        "pairs": [_pair(pair) for pair in summary.of(PAIRS)],
        "compiler_ratios": [_compiler_ratio(average) for average in summary.averages_of(PAIRS)],
        "compile_starts": [_compile_start(row) for row in summary.compile_starts],
        "compile_pairs": [_compile_pair(pair) for pair in summary.of(COMPILATIONS)],
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
    rows = [
        {
            "job": c.record.job.key,
            "candidate": c.record.candidate,
            "torch": c.record.environment.get("torch"),
            "parity": c.record.env_parity,
            "environment": c.first.env,
            "reference": c.second.env,
            "compiler": c.first.name,
            "reference_ms": getattr(c.estimate, "baseline_ms", None),
            "ms": getattr(c.estimate, "candidate_ms", None),
            **_ratio(c, "speedup"),
            "n": c.estimate.n if c.estimate else 0,
            "same_results": same_results(c.record),
            "counts": c.counts,
        }
        for c in summary.of(REFERENCE)
    ]
    averages = [*map(_average, summary.averages_of(REFERENCE))]
    return {"environments": rows, "environment_averages": averages} if rows else {}


def _ratio(ratio: Ratio, name: str) -> dict[str, Any]:
    known = ratio.estimate
    return {
        "n": known.n if known else 0,
        name: known and known.factor,
        "ci_low": known and known.low,
        "ci_high": known and known.high,
        "p_value": known and known.p_value,
        "q_value": ratio.q_value,
        "verdict": ratio.verdict,
        "open_because": ratio.open and ratio.open.reason,
    }


def _pair(pair: Ratio) -> dict[str, Any]:
    """The first candidate over the second, from the rounds that timed both."""
    return {
        "job": pair.record.job.key,
        "first": pair.record.candidate,
        "second": pair.other and pair.other.candidate,
        **_ratio(pair, "speedup"),
    }


def _compiler_ratio(average: Average) -> dict[str, Any]:
    return {
        **average.place._asdict(),
        "first": average.first.name,
        "second": average.second.name,
        "mean": _mean_of(average.mean),
    }


def _mean_of(mean: Mean) -> dict[str, Any]:
    over, these = mean.over, mean.these
    return {
        "models": mean.models,
        "value": mean.value,
        "low": over and over.low,
        "high": over and over.high,
        "these_low": these and these.low,
        "these_high": these and these.high,
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


def _compile_pair(pair: Ratio) -> dict[str, Any]:
    """Compilations of two candidates, or of one from cold and warm caches, in the same rounds."""
    values = _ratio(pair, "ratio")
    values["needed"] = pair.open and pair.open.pairs
    del values["n"], values["open_because"]
    return {
        "job": pair.record.job.key,
        "first": pair.record.candidate,
        "first_start": pair.first.start,
        "second": pair.other and pair.other.candidate,
        "second_start": pair.second.start,
        **values,
    }


def _form(form: StartForm) -> dict[str, Any]:
    """The fields of a form of the start-up race, or of a stream of shapes, but its curve: records have it."""
    values = {field.name: getattr(form, field.name) for field in fields(form)[1:] if field.name != "curve"}
    values["after"] = {str(step): _typical(seconds) for step, seconds in form.after.items()}
    values["settled_s"] = _typical(form.settled_s)
    values["speedup"] = form.speedup and _typical(form.speedup)
    return {"job": form.comparison.record.job.key, "candidate": form.comparison.record.candidate, **values}


def _typical(estimate: Estimate) -> dict[str, float | None]:
    return {"value": estimate.factor, "low": estimate.low, "high": estimate.high}


def _curve(curve: Curve) -> dict[str, Any]:
    """The jobs of a candidate over an axis, the values that count, and where its speedup crosses 1."""
    return {
        "axis": curve.axis,
        "candidate": curve.comparisons[0].record.candidate,
        "jobs": [comparison.record.job.key for comparison in curve.comparisons],
        "points": [*curve.points],
        "crossovers": curve.crossovers,
    }


def _generation(comparison: Comparison) -> dict[str, Any] | None:
    if "prefill" not in comparison.own:
        return None
    parts = {name: comparison.own[name].estimate for name in ("prefill", "decode") if name in comparison.own}
    names = dict(zip(OF_PART, ("baseline_ms", "candidate_ms", "factor", "low", "high"), strict=True))
    values = {part: {key: getattr(e, name) for key, name in names.items()} for part, e in parts.items()}
    rates = ("baseline_tokens_per_s", "candidate_tokens_per_s")
    return {"decode": None, **values, **{name: columns()[name].value(comparison) for name in rates}}


def _group(group: GroupSummary) -> dict[str, Any]:
    """The fields of the group, with ``mean_<metric>`` and the number of models instead of ``means``."""
    means: dict[str, Any] = {}
    for metric in declared().averages():
        assert metric.average is not None
        mean = group.means[metric.name]
        means |= {f"{metric.average.key}_n": mean.n, f"mean_{metric.name}": mean.value}
    return {
        **{name: getattr(group, name) for name in OF_GROUP},
        **group.place._asdict(),
        **_mean(group.mean),
        **means,
        "verdicts": group.verdicts,
        "checked": group.checked,
        "these_low": group.mean.these and group.mean.these.low,
        "these_high": group.mean.these and group.mean.these.high,
        "pass_low": group.pass_low,
        "pass_high": group.pass_high,
        "judged_finely": group.judged.value,
        "judged_models": group.judged.n,
        "common_models": group.common.models,
        "common_geomean": group.common.value,
        "common_low": group.common.over and group.common.over.low,
        "common_high": group.common.over and group.common.over.high,
        "break_even": group.break_even,
        "system": _mean_of(group.system),
        "allocator": _mean_of(group.allocator),
    }


def _average(average: Average) -> dict[str, Any]:
    sides = {"environment": average.first.env, "versions": versions(average), "compiler": average.first.name}
    return {**sides, **average.place._asdict(), "total": average.total, **_mean(average.mean)}


def _mean(mean: Mean) -> dict[str, Any]:
    names = ("averaged", "geomean_speedup", "geomean_low", "geomean_high")
    return dict(zip(names, [*_mean_of(mean).values()][:4], strict=True))


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
        "generation": _generation(comparison),
        "parity": record.parity,
        "metrics": record.metrics,
        "failure": record.failure,
        "notes": notes_of(record),
        "reproduce": record.reproduce,
        "started": record.started,
        "ended": record.ended,
    }
