"""What a result is called, in text and in a notebook."""

from __future__ import annotations

from harness.schema import Job
from runner.analysis.comparison import Comparison
from runner.labels import case_name

NOT_ISOLATED = "not isolated: measured in the calling process, where other work may disturb the times"


def title(job: Job) -> str:
    """``Sequential (training, float32, cpu)``"""
    return f"{case_name(job.case)} ({job.case.mode.value}, {job.dtype}, {job.device})"


def shown_name(comparison: Comparison) -> str:
    """As the tables have it."""
    from runner.reports.parts.sections import compiler_name

    return compiler_name(comparison.compiler)
