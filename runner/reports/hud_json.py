"""benchmark.hud.json: the run as records of PyTorch's benchmark database, one metric each.

The dashboards of PyTorch (HUD) and vLLM read this form: ``benchmark``, ``model``, ``metric`` with
``benchmark_values``. Times have every sample, in the order in which they were taken; a derived number has one
value, and its interval is in ``extra_info``. Written only if ``--format=hud`` asks for it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from itertools import accumulate
from typing import Any

from harness.codec import to_json
from harness.declared import finite
from harness.schema import Status
from runner.analysis.columns import OF_PYTORCH, columns
from runner.analysis.comparison import Comparison, Summary
from runner.labels import ran_batch

FORMATS = ("hud",)
ON_REQUEST = True
FILE = "benchmark.hud.json"
IN_ONE_NUMBER = (
    *("compilation_latency", "compression_ratio", "eager_peak_mem", "dynamo_peak_mem"),
    *("calls_captured", "graph_breaks"),
)
UNITS = {"ratio": "x"}
PARITY = "accuracy"  # 1 passed, 0 not; the field's word for the check


def render(summary: Summary) -> Mapping[str, bytes]:
    labels = summary.labels
    records = [record for comparison in summary.comparisons for record in _records(comparison, labels)]
    lines = (json.dumps(to_json(record), allow_nan=False, ensure_ascii=False) for record in records)
    return {FILE: ("[\n" + ",\n".join(lines) + "\n]\n").encode(errors="backslashreplace")}


def _records(comparison: Comparison, labels: Mapping[str, str]) -> Iterator[dict[str, Any]]:
    job, case = comparison.record.job, comparison.record.job.case
    facts = comparison.record.environment
    about = {
        "benchmark": {
            "name": "torchduet",
            "mode": case.mode,
            "dtype": job.dtype,
            "extra_info": {
                "device": job.device,
                "arch": facts.get("device_name"),
                "batch_size": ran_batch(comparison.record),
                "scale": case.scale,
                "changes": case.changes,
                "protocol": "performance" if job.protocol.performance else "accuracy",
            },
        },
        "model": {
            "name": case.name,
            "type": "OSS model",
            "backend": comparison.compiler,
            "origins": [labels[case.suite]],
        },
        "dependencies": {
            name: {"version": facts[name]} for name in ("torch", "python", "triton") if facts.get(name)
        },
    }
    for metric in _metrics(comparison):
        yield {**about, "metric": metric}


def _metrics(comparison: Comparison) -> Iterator[dict[str, Any]]:
    record, samples = comparison.record, comparison.record.samples
    if record.status not in (Status.SKIP, Status.PASS_DUE_TO_SKIP):  # parity was not checked
        yield _metric(PARITY, [float(record.status.passed)], status=record.status)
    if samples is not None and comparison.n:
        yield _metric(
            "eager_latency", [1e3 * s for s in samples.baseline_s], "ms", median=comparison.baseline_ms
        )
        yield _metric(
            "abs_latency", [1e3 * s for s in samples.candidate_s], "ms", median=comparison.candidate_ms
        )
    if comparison.speedup is not None:
        names = ("ci_low", "ci_high", "p_value", "q_value", "verdict", "n")
        yield _metric(
            "speedup", [comparison.speedup], "x", **{name: getattr(comparison, name) for name in names}
        )
    for header in IN_ONE_NUMBER:
        column = columns()[OF_PYTORCH[header]]
        value = finite(column.value(comparison))
        if column.name == "compilation_latency_s" and comparison.compilations_s:
            yield _metric(header, [*comparison.compilations_s], column.unit)
        elif value is not None:
            yield _metric(header, [value], UNITS.get(column.unit, column.unit))
    for race in record.compilations:
        if race.first_calls_s:  # of --start-up
            ends = [*accumulate(race.first_calls_s)]
            yield _metric(
                "shapes" if record.job.extras.shapes else "start_up",
                ends,
                "s",
                start=race.start,
                round=race.round,
            )


def _metric(name: str, values: list[float], unit: str = "", **more: Any) -> dict[str, Any]:
    return {"name": name, "unit": unit, "benchmark_values": values, "extra_info": more}
