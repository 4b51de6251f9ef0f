"""How noisy the samples of a record are."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

import numpy as np

from harness.schema import Record, Scalar
from runner.analysis.comparison import STEADINESS, Comparison
from runner.analysis.statistics import (
    are_times,
    coefficient_of_variation,
    lag_1_autocorrelation,
)

MOST_SWITCHES_PER_S = 100.0
LEAST_CV = 0.1  # if times vary less, the context switches did no harm


def steadiness(record: Record) -> dict[str, Scalar]:
    """How steady the timed rounds were; empty if no samples can be used."""
    samples = record.samples
    if samples is None:
        return {}
    baseline_s, candidate_s = np.array(samples.baseline_s), np.array(samples.candidate_s)
    pairs = baseline_s.size == candidate_s.size > 0
    if not (pairs and are_times(baseline_s) and are_times(candidate_s)):
        return {}
    numbers = (
        coefficient_of_variation(baseline_s),
        coefficient_of_variation(candidate_s),
        lag_1_autocorrelation(np.log(baseline_s / candidate_s)),
        _median(samples.baseline_minor_faults),
        _median(samples.candidate_minor_faults),
    )
    return dict(zip(STEADINESS, numbers, strict=True))


def is_crowded(comparison: Comparison) -> bool:
    """Whether other work used the CPUs: involuntary context switches, and eager's times vary."""
    switches, cv = (comparison.number(name) or 0.0 for name in ("involuntary_switches_per_s", "baseline_cv"))
    return comparison.n > 0 and switches > MOST_SWITCHES_PER_S and cv > LEAST_CV


def _median(values: Sequence[float]) -> float | None:
    return median(values) if values else None
