"""Numbers derived from a record: rates of the median step, shares of device limits, ratios, steadiness."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median

import numpy as np

from harness.declared import CANDIDATE, EAGER, Seen, finite
from harness.metrics import declared
from harness.schema import Record, Scalar
from runner.analysis.comparison import STEADINESS
from runner.analysis.estimate import PairedEstimate
from runner.analysis.statistics import are_times, coefficient_of_variation, lag_1_autocorrelation

Peaks = Mapping[str, float]
"""The highest rates measured on a device. Each job measures them; a disturbed job measures less."""


def peaks_of(records: Sequence[Record], devices: Sequence[str]) -> tuple[Peaks, ...]:
    """For each record, the highest rates of the records with its device, precision and thread count."""
    names = [metric.name for metric in declared().metrics if metric.limit]
    keys = [
        (device, record.job.dtype, record.job.protocol.threads)
        for record, device in zip(records, devices, strict=True)
    ]
    peaks: dict[tuple[str, str, int | None], dict[str, float]] = {}
    for key, record in zip(keys, records, strict=True):
        best = peaks.setdefault(key, {})
        for name in names:
            value = finite(record.metrics.get(name))
            if value is not None:
                best[name] = max(value, best.get(name, value))
    return tuple(peaks[key] for key in keys)


def derived_of(record: Record, estimate: PairedEstimate | None, peaks: Peaks) -> dict[str, Scalar]:
    """All metrics derived from the record's metrics."""
    steps = (
        {}
        if estimate is None
        else {EAGER: estimate.baseline_median_s, CANDIDATE: estimate.candidate_median_s}
    )
    # peaks are measured at the candidate's precision, so eager in another precision has no share of them
    alike = record.job.baseline_dtype in (None, record.job.dtype)
    seen = Seen(
        numbers=record.metrics,
        environment=record.environment,
        best=peaks,
        step_s=steps,
        comparable={EAGER: alike, CANDIDATE: True},
    )
    return declared().derived(seen)


def steadiness(record: Record) -> dict[str, Scalar]:
    """How steady the timed rounds were; empty if no samples can be used."""
    samples = record.samples
    if samples is None:
        return {}
    baseline_s, candidate_s = np.array(samples.baseline_s), np.array(samples.candidate_s)
    pairs = baseline_s.size == candidate_s.size > 0
    if not (pairs and are_times(baseline_s) and are_times(candidate_s)):
        return {}
    faults = (samples.baseline_minor_faults, samples.candidate_minor_faults)
    numbers = (
        coefficient_of_variation(baseline_s),
        coefficient_of_variation(candidate_s),
        lag_1_autocorrelation(np.log(baseline_s / candidate_s)),
        *(median(values) if values else None for values in faults),
    )
    return dict(zip(STEADINESS, numbers, strict=True))
