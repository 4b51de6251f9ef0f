"""environments.csv: every (environment, compiler) against eager of the reference environment, model by model.

And their geometric means in environments_averages.csv. Only for a run with ``--envs``.
"""

from __future__ import annotations

from collections.abc import Mapping

from runner.comparison import Summary
from runner.labels import ran_batch
from runner.reports._cells import Cell, csv_bytes

FORMATS = ("csv",)
VERSIONS = ("python", "torch", "cuda", "cudnn", "triton", "driver", "transformers", "timm")


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
    for one in summary.across:
        record, job, case = one.record, one.record.job, one.record.job.case
        rows.append(
            (
                *(case.suite, case.name, case.mode.value, job.device, job.dtype, ran_batch(record)),
                *(one.environment, one.reference, one.compiler, record.status.value),
                *(one.same_results, one.counts, one.n),
                *(one.reference_ms, one.ms, one.speedup, one.ci_low, one.ci_high),
                *(one.p_value, one.q_value, one.verdict.value if one.verdict else None),
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
            *(one.suite, one.mode, one.device, one.dtype, one.environment, one.versions, one.compiler),
            *(one.averaged, one.total, one.geomean_speedup, one.geomean_low, one.geomean_high),
        )
        for one in summary.across_averages
    ]
    return csv_bytes(header, rows)
