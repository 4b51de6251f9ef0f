"""A job whose measured peak was disturbed does not make the others look as if they beat the machine."""

from __future__ import annotations

from dataclasses import replace

import pytest

from runner.analysis.derive import compare
from tests.factories import make_job, make_record


def test_shares_are_of_the_best_peak_of_the_run() -> None:
    records = []
    for number, peak in enumerate((1e11, 1e9)):
        record = make_record(make_job(f"model_{number}"), "inductor")
        metrics = {**record.metrics, "flops_per_step": 10**8, "measured_peak_flop_per_s": peak}
        records.append(replace(record, metrics=metrics))
    for comparison in compare(records):
        rate = comparison.number("candidate_tflop_per_s")
        assert rate is not None
        assert comparison.number("candidate_share_of_measured") == pytest.approx(rate / 0.1)


def test_other_precisions_have_peaks_of_their_own() -> None:
    records = []
    for dtype, peak in (("float32", 1e11), ("bfloat16", 1e12)):
        record = make_record(make_job(dtype=dtype), "inductor")
        metrics = {**record.metrics, "flops_per_step": 10**8, "measured_peak_flop_per_s": peak}
        records.append(replace(record, metrics=metrics))
    first, second = (comparison.work for comparison in compare(records))
    assert first is not None
    assert second is not None
    assert (first["measured_peak_tflop_per_s"], second["measured_peak_tflop_per_s"]) == (0.1, 1.0)
