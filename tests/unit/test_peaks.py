"""A job whose measured peak was disturbed does not make the others look as if they beat the machine."""

from dataclasses import replace

import pytest

from harness.schema import Job
from runner.analysis.comparison import Comparison
from runner.analysis.derive import compare
from tests.factories import make_job, make_record


def comparisons(*cases: tuple[Job, float]) -> tuple[Comparison, ...]:
    """Of models with 1e8 FLOP per step, and these measured peaks."""
    records = []
    for job, peak in cases:
        record = make_record(job, "inductor")
        metrics = {**record.metrics, "flops_per_step": 10**8, "measured_peak_flop_per_s": peak}
        records.append(replace(record, metrics=metrics))
    return tuple(compare(records))


def test_shares_are_of_the_best_peak_of_the_run() -> None:
    for comparison in comparisons((make_job("one"), 1e11), (make_job("other"), 1e9)):
        rate = comparison.number("candidate_tflop_per_s")
        assert rate is not None
        assert comparison.number("candidate_share_of_measured") == pytest.approx(rate / 0.1)
