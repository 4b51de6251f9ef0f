"""benchmark.hud.json: the run as records of PyTorch's benchmark database, one metric each.

The dashboards of PyTorch (HUD) and vLLM read this form. Times have every sample, in the order in which they
were taken. Written only if ``--format=hud`` asks for it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from harness.codec import to_json
from harness.declared import finite
from harness.schema import Status
from runner.analysis.columns import OF_PYTORCH, columns
from runner.analysis.results import Result, Summary
from runner.names import ran_batch

FORMATS = ("hud",)
ON_REQUEST = True
FILE = "benchmark.hud.json"
PEAKS = ("eager_peak_mem", "dynamo_peak_mem")
UNITS = {"compilation_latency": "s", "compression_ratio": "x"} | dict.fromkeys(PEAKS, "GB")
BESIDE_SPEEDUP = ("ci_low", "ci_high", "p_value", "q_value", "verdict", "n")


def render(summary: Summary) -> Mapping[str, bytes]:
    records = [record for c in summary.comparisons for record in _records(c, summary)]
    return {FILE: (json.dumps(to_json(records), allow_nan=False) + "\n").encode()}


def _records(comparison: Result, summary: Summary) -> list[dict[str, Any]]:
    record, case, job = comparison.record, comparison.record.job.case, comparison.record.job
    facts, samples = record.environment, record.samples
    more = {"device": job.device, "arch": facts.get("device_name"), "batch_size": ran_batch(record)}
    about = {
        "benchmark": {"name": "torchduet", "mode": case.mode, "dtype": job.dtype, "extra_info": more},
        "model": {"name": case.name, "backend": comparison.compiler, "origins": [summary.labels[case.suite]]},
        "dependencies": {name: {"version": facts[name]} for name in ("torch", "python") if facts.get(name)},
    }
    numbers: list[tuple[str, str, list[float], dict[str, Any]]] = []
    if record.status not in (Status.SKIP, Status.PASS_DUE_TO_SKIP):  # parity was checked
        numbers.append(("accuracy", "", [float(record.status.passed)], {"status": record.status}))
    if samples is not None:
        numbers.append(("eager_latency", "ms", [1e3 * s for s in samples.baseline_s], {}))
        numbers.append(("abs_latency", "ms", [1e3 * s for s in samples.candidate_s], {}))
    if comparison.speedup is not None:
        beside = {name: columns()[name].value(comparison) for name in BESIDE_SPEEDUP}
        numbers.append(("speedup", "x", [comparison.speedup], beside))
    for name, unit in UNITS.items():
        if (value := finite(columns()[OF_PYTORCH[name]].value(comparison))) is not None:
            numbers.append((name, unit, [value], {}))
    keys = ("name", "unit", "benchmark_values", "extra_info")
    return [{**about, "metric": dict(zip(keys, metric, strict=True))} for metric in numbers]
