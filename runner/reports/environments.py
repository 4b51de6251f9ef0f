"""environments.csv: every (environment, compiler) relative to eager of the reference, model by model.

environments_averages.csv: the geometric means. Only for a run with ``--envs``.
"""

from __future__ import annotations

from collections.abc import Mapping

from harness.devices import PLATFORMS
from runner.analysis.comparison import Summary
from runner.labels import ran_batch
from runner.reports.parts.cells import Cell, csv_bytes

FORMATS = ("csv",)
VERSIONS = ("python", "torch", *PLATFORMS, "cudnn", "triton", "driver", "transformers", "timm")


def render(summary: Summary) -> Mapping[str, bytes]:
    if not summary.across:
        return {}
    return {"environments.csv": _by_model(summary), "environments_averages.csv": _averages(summary)}


def _by_model(summary: Summary) -> bytes:
    header = (
        *("suite", "model", "mode", "device", "dtype", "batch_size"),
        *("environment", "reference", "compiler", "status", "same_results", "counts", "n"),
        *("reference_ms", "ms", "speedup", "ci_low", "ci_high", "p_value", "q_value", "verdict"),
        *VERSIONS,
    )
    rows: list[tuple[Cell, ...]] = []
    for row in summary.across:
        record, job, case = row.record, row.record.job, row.record.job.case
        rows.append(
            (
                *(case.suite, case.name, case.mode.value, job.device, job.dtype, ran_batch(record)),
                *(row.environment, row.reference, row.compiler, record.status.value),
                *(row.same_results, row.counts, row.n),
                *(row.baseline_ms, row.candidate_ms, row.speedup, row.ci_low, row.ci_high),
                *(row.p_value, row.q_value, row.verdict.value if row.verdict else None),
                *(record.environment.get(name) for name in VERSIONS),
            )
        )
    return csv_bytes(header, rows)


def _averages(summary: Summary) -> bytes:
    header = (
        *("suite", "mode", "device", "dtype", "environment", "versions", "compiler"),
        *("averaged", "total", "geomean_speedup", "geomean_low", "geomean_high"),
    )
    rows = [
        (
            *(row.suite, row.mode, row.device, row.dtype, row.environment, row.versions, row.compiler),
            *(row.averaged, row.total, row.geomean_speedup, row.geomean_low, row.geomean_high),
        )
        for row in summary.across_averages
    ]
    return csv_bytes(header, rows)
