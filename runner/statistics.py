"""The statistics of paired samples: floats in, floats out, numpy and scipy behind them.

For round r, d_r = ln(baseline_r / candidate_r). The estimate and its interval
are those that belong to the Wilcoxon signed-rank test, so estimate, interval
and p-value never contradict each other:

- estimate: the Hodges-Lehmann pseudo-median, the median of all Walsh averages
  (d_i + d_j) / 2, i <= j (Hodges & Lehmann 1963);
- interval: from the k-th smallest to the k-th largest Walsh average, k from the
  signed-rank null distribution (Hollander & Wolfe, Nonparametric Statistical
  Methods, section 3.3);
- p: Wilcoxon signed-rank, two-sided (Wilcoxon 1945);
- q: Benjamini & Hochberg 1995.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from runner.comparison import Verdict

Floats = NDArray[np.float64]
Column = Sequence[float] | NDArray[np.floating[Any]]
EXACT_UP_TO = 60  # rounds; above, the normal approximation of the rank sum is accurate to 3 digits


@dataclass(frozen=True, slots=True, kw_only=True)
class PairedEstimate:
    """What n pairs say. Times in seconds; speedups are baseline / candidate.

    The interval is None where n is too small for it to exist (under 6 pairs at 95 %).
    """

    n: int
    speedup: float
    ci_low: float | None
    ci_high: float | None
    p_value: float
    speedup_of_medians: float
    baseline_median_s: float
    candidate_median_s: float


def paired_speedup(baseline_s: Column, candidate_s: Column, *, confidence: float = 0.95) -> PairedEstimate:
    """Compares two columns of times, round by round.

    Raises ``ValueError`` for columns that are empty, of different length, or
    that hold anything but positive finite times.
    """
    baseline = np.asarray(baseline_s, dtype=np.float64)
    candidate = np.asarray(candidate_s, dtype=np.float64)
    if baseline.shape != candidate.shape or baseline.ndim != 1:
        raise ValueError(f"{baseline.size} baseline times but {candidate.size} candidate times")
    if baseline.size == 0:
        raise ValueError("there are no times to compare")
    times = np.concatenate((baseline, candidate))
    if not (np.isfinite(times).all() and (times > 0).all()):
        raise ValueError("times must be positive and finite")
    differences = np.log(baseline / candidate)
    averages = walsh_averages(differences)
    rank = interval_rank(differences.size, confidence)
    return PairedEstimate(
        n=int(differences.size),
        speedup=math.exp(float(np.median(averages))),
        ci_low=math.exp(averages[rank - 1]) if rank else None,
        ci_high=math.exp(averages[-rank]) if rank else None,
        p_value=signed_rank_p(differences),
        speedup_of_medians=float(np.median(baseline) / np.median(candidate)),
        baseline_median_s=float(np.median(baseline)),
        candidate_median_s=float(np.median(candidate)),
    )


def walsh_averages(differences: Floats) -> Floats:
    """All n(n+1)/2 averages of two (or twice the same) differences, sorted."""
    rows, columns = np.triu_indices(differences.size)
    averages: Floats = np.sort((differences[rows] + differences[columns]) / 2)
    return averages


def interval_rank(n: int, confidence: float) -> int | None:
    """k such that the k-th smallest and k-th largest Walsh average bound the interval; None: no such k."""
    tail = (1 - confidence) / 2
    if n <= EXACT_UP_TO:
        below = int(np.searchsorted(_signed_rank_cdf(n), tail, side="right"))
    else:
        mean, variance = n * (n + 1) / 4, n * (n + 1) * (2 * n + 1) / 24
        below = math.floor(mean + stats.norm.ppf(tail) * math.sqrt(variance))
    return below if below >= 1 else None


@lru_cache(maxsize=EXACT_UP_TO + 1)
def _signed_rank_cdf(n: int) -> Floats:
    """P(W <= w) for w = 0 ... n(n+1)/2 under the null: each rank joins the sum by a coin toss."""
    counts = np.zeros(n * (n + 1) // 2 + 1)
    counts[0] = 1.0
    for rank in range(1, n + 1):
        shifted = np.zeros_like(counts)
        shifted[rank:] = counts[:-rank]
        counts = (counts + shifted) / 2
    cumulative: Floats = np.cumsum(counts)
    return cumulative


def signed_rank_p(differences: Floats) -> float:
    """Two-sided Wilcoxon signed-rank p. Zero differences are dropped, as Wilcoxon did; 1.0 if all are."""
    # ln(a/b) and -ln(b/a) may differ in the last bit: what differs by rounding alone is tied
    settled = np.round(differences, 12)
    informative = settled[settled != 0.0]
    if informative.size < 1:
        return 1.0
    tied = np.unique(np.abs(informative)).size < informative.size
    exact = informative.size <= EXACT_UP_TO and not tied
    result = stats.wilcoxon(informative, method="exact" if exact else "approx")
    return float(result.pvalue)


def false_discovery(p_values: Sequence[float | None]) -> list[float | None]:
    """Benjamini-Hochberg q-values over those that exist; a None stays None and is no member of the family."""
    present = [p for p in p_values if p is not None]
    if not present:
        return [None for _ in p_values]
    adjusted = iter(stats.false_discovery_control(present, method="bh").tolist())
    return [None if p is None else float(next(adjusted)) for p in p_values]


def verdict(
    estimate: PairedEstimate, q_value: float | None, *, noise_threshold: float, alpha: float
) -> Verdict:
    """Faster or slower needs both significance and a change beyond the threshold (the same factor either
    way: 1 + t and 1 / (1 + t)); same needs the whole interval inside it; anything else is inconclusive."""
    high, low = 1 + noise_threshold, 1 / (1 + noise_threshold)
    if q_value is not None and q_value < alpha:
        if estimate.speedup > high:
            return Verdict.FASTER
        if estimate.speedup < low:
            return Verdict.SLOWER
    if estimate.ci_low is None or estimate.ci_high is None:
        return Verdict.INCONCLUSIVE
    inside = low <= estimate.ci_low and estimate.ci_high <= high
    return Verdict.SAME if inside else Verdict.INCONCLUSIVE


def geometric_mean(speedups: Sequence[float]) -> tuple[float, float | None, float | None]:
    """The geometric mean and its 95 % interval (Student's t on the logarithms; None for one value).

    Raises ``ValueError`` for no values, or values that are not positive.
    """
    values = np.asarray(speedups, dtype=np.float64)
    if values.size == 0 or not (values > 0).all():
        raise ValueError("a geometric mean needs positive values")
    logs = np.log(values)
    mean = float(logs.mean())
    if logs.size == 1:
        return math.exp(mean), None, None
    half = float(stats.t.ppf(0.975, logs.size - 1) * logs.std(ddof=1) / math.sqrt(logs.size))
    return math.exp(mean), math.exp(mean - half), math.exp(mean + half)


def coefficient_of_variation(values: Sequence[float]) -> float | None:
    """Standard deviation / mean; None below two values."""
    column = np.asarray(values, dtype=np.float64)
    return float(column.std(ddof=1) / column.mean()) if column.size >= 2 else None


def lag_1_autocorrelation(values: Sequence[float]) -> float | None:
    """Correlation of each value's deviation from the mean with the next one's; None below three values."""
    column = np.asarray(values, dtype=np.float64)
    if column.size < 3:
        return None
    centred = column - column.mean()
    total = float((centred**2).sum())
    return float((centred[:-1] * centred[1:]).sum()) / total if total > 0 else None
