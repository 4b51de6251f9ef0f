"""How noisy the samples of a record are, and how many rounds a difference of a given size needs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import median

import numpy as np

from harness.schema import Record, Samples
from runner.comparison import Noise
from runner.statistics import are_times, coefficient_of_variation, lag_1_autocorrelation, paired_speedup

FEWEST_ROUNDS = 6  # below, a 95 % interval does not exist


def noise_of(record: Record) -> Noise | None:
    """Of the timed rounds; None where there are none that can be used."""
    samples = record.samples
    if samples is None:
        return None
    baseline_s, candidate_s = np.array(samples.baseline_s), np.array(samples.candidate_s)
    pairs = baseline_s.size == candidate_s.size > 0
    if not (pairs and are_times(baseline_s) and are_times(candidate_s)):
        return None
    wall_s = number(record, "rounds_wall_s")
    cpus = number_in(record.environment.get("cpu_count"))
    reasons = record.metrics.get("gpu_throttle_reasons")
    return Noise(
        baseline_cv=coefficient_of_variation(baseline_s),
        candidate_cv=coefficient_of_variation(candidate_s),
        lag_1=lag_1_autocorrelation(np.log(baseline_s / candidate_s)),
        baseline_minor_faults=_median(samples.baseline_minor_faults),
        candidate_minor_faults=_median(samples.candidate_minor_faults),
        stolen_share=_share(number(record, "stolen_cpu_s"), wall_s, cpus),
        involuntary_switches_per_s=_share(number(record, "involuntary_switches"), wall_s),
        throttled_share=_share(number(record, "throttled_s"), wall_s),
        gpu_clock_min_mhz=number(record, "gpu_clock_min_mhz"),
        gpu_clock_max_mhz=number(record, "gpu_clock_max_mhz"),
        gpu_throttle_reasons=reasons if isinstance(reasons, str) else None,
    )


def rounds_for(samples: Samples, share: float) -> int | None:
    """About how many rounds make the 95 % interval as narrow as +-``share``, with noise as in these samples.

    An interval narrows with the square root of the number of rounds. None where
    there are too few samples to say.
    """
    estimate = paired_speedup(samples.baseline_s, samples.candidate_s)
    half = estimate.half_width
    if half is None:
        return None
    return max(FEWEST_ROUNDS, math.ceil(estimate.n * (half / math.log1p(share)) ** 2))


def number(record: Record, metric: str) -> float | None:
    """The metric as a finite number; None for anything else, whoever wrote the record."""
    return number_in(record.metrics.get(metric))


def number_in(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        return None
    return float(value)


def _median(values: Sequence[float]) -> float | None:
    return median(values) if values else None


def _share(part: float | None, wall_s: float | None, cpus: float | None = 1.0) -> float | None:
    return part / (wall_s * cpus) if part is not None and wall_s and cpus else None
