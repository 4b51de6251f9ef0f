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
- several processes: each gives one Hodges-Lehmann estimate, and these are the
  sample: their mean, with Student's t (as the highest level of Kalibera & Jones,
  Rigorous benchmarking in reasonable time, 2013: it holds what varies below it);
- q: Benjamini & Hochberg 1995.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import special

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
    processes: int = 1
    between_sd: float | None = None  # of the processes' logarithms of the speedup; None below 2 processes

    @property
    def half_width(self) -> float | None:
        """Half the interval's width in the logarithm of the speedup; None where there is no interval."""
        return half_width(self.ci_low, self.ci_high)


def half_width(low: float | None, high: float | None) -> float | None:
    return None if low is None or high is None else math.log(high / low) / 2


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
    if not are_times(times):
        raise ValueError("times must be positive and finite")
    differences = np.log(baseline / candidate)
    averages = walsh_averages(differences)
    rank = interval_rank(differences.size, confidence)
    baseline_median, candidate_median = _middle(np.sort(baseline)), _middle(np.sort(candidate))
    return PairedEstimate(
        n=int(differences.size),
        speedup=math.exp(_middle(averages)),
        ci_low=math.exp(averages[rank - 1]) if rank else None,
        ci_high=math.exp(averages[-rank]) if rank else None,
        p_value=signed_rank_p(differences),
        speedup_of_medians=baseline_median / candidate_median,
        baseline_median_s=baseline_median,
        candidate_median_s=candidate_median,
    )


def are_times(column: Floats) -> bool:
    """Whether all of them are positive and finite."""
    return bool(np.isfinite(column).all() and (column > 0).all())


def speedup_by_process(
    baseline_s: Column, candidate_s: Column, rounds_by_process: Sequence[int], *, confidence: float = 0.95
) -> PairedEstimate:
    """The speedup over processes, whose rounds follow each other in the columns; () for one process.

    The interval then holds what varies between processes as well as within them.
    Raises ``ValueError`` as ``paired_speedup`` does, and where the rounds do not add up to the columns.
    """
    whole = paired_speedup(baseline_s, candidate_s, confidence=confidence)
    if len(rounds_by_process) < 2:
        return whole
    ends = np.cumsum(rounds_by_process)
    if min(rounds_by_process) < 1 or ends[-1] != whole.n:
        raise ValueError(f"{whole.n} rounds but {list(rounds_by_process)} by process")
    logs = np.array(
        [
            math.log(paired_speedup(baseline_s[end - n : end], candidate_s[end - n : end]).speedup)
            for n, end in zip(rounds_by_process, ends, strict=True)
        ]
    )
    centre, spread = float(logs.mean()), float(logs.std(ddof=1))
    error = spread / math.sqrt(logs.size)
    p_value = float(centre == 0)
    if error > 0:
        p_value = float(2 * special.stdtr(logs.size - 1, -abs(centre) / error))
    half = float(special.stdtrit(logs.size - 1, (1 + confidence) / 2)) * error
    return replace(
        whole,
        speedup=math.exp(centre),
        ci_low=math.exp(centre - half),
        ci_high=math.exp(centre + half),
        p_value=p_value,
        processes=int(logs.size),
        between_sd=spread,
    )


def _middle(ordered: Floats) -> float:
    """The median of sorted values: np.median sorts again, and checks what is known here."""
    return float(ordered[(ordered.size - 1) // 2] + ordered[ordered.size // 2]) / 2


def estimated(
    baseline_s: Column, candidate_s: Column, rounds_by_process: Sequence[int]
) -> PairedEstimate | None:
    """As ``speedup_by_process``; None for samples that are none, whoever wrote them."""
    try:
        return speedup_by_process(baseline_s, candidate_s, rounds_by_process)
    except ValueError:
        return None


def walsh_averages(differences: Floats) -> Floats:
    """All n(n+1)/2 averages of two (or twice the same) differences, sorted."""
    rows, columns = _pairs(differences.size)
    averages: Floats = np.sort((differences[rows] + differences[columns]) / 2)
    return averages


@lru_cache(maxsize=4)
def _pairs(n: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """The places i <= j of all pairs, as two columns; the runs of a report mostly have the same n."""
    rows, columns = np.triu_indices(n)
    return rows, columns


def interval_rank(n: int, confidence: float) -> int | None:
    """k such that the k-th smallest and k-th largest Walsh average bound the interval; None: no such k."""
    tail = (1 - confidence) / 2
    if n <= EXACT_UP_TO:
        below = int(np.searchsorted(_signed_rank_cdf(n), tail, side="right"))
    else:
        mean, variance = n * (n + 1) / 4, n * (n + 1) * (2 * n + 1) / 24
        below = math.floor(mean + float(special.ndtri(tail)) * math.sqrt(variance))
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
    sizes = np.abs(informative)
    order = np.argsort(sizes)
    n = int(sizes.size)
    if (np.diff(sizes[order]) == 0).any():
        from scipy import stats  # half a second that every run and report would wait for

        return float(stats.wilcoxon(informative, method="approx").pvalue)
    # without ties both of scipy's ways are these, at a fiftieth of its time: a report has ten thousand
    rank_sum = int(np.flatnonzero(informative[order] > 0).sum() + np.count_nonzero(informative > 0))
    smaller = min(rank_sum, n * (n + 1) // 2 - rank_sum)
    if n <= EXACT_UP_TO:
        return min(1.0, 2 * float(_signed_rank_cdf(n)[smaller]))
    mean, variance = n * (n + 1) / 4, n * (n + 1) * (2 * n + 1) / 24
    return float(2 * special.ndtr((smaller - mean) / math.sqrt(variance)))


def false_discovery(p_values: Sequence[float | None]) -> list[float | None]:
    """Benjamini-Hochberg q-values over those that exist; a None stays None and is no member of the family."""
    present = np.array([p for p in p_values if p is not None])
    order = np.argsort(present)[::-1]  # from the largest, so that no q is above that of a larger p
    ranks = np.arange(present.size, 0, -1)
    adjusted_down = np.minimum.accumulate(np.minimum(present[order] * (present.size / ranks), 1.0))
    adjusted = iter(adjusted_down[np.argsort(order)].tolist())
    return [None if p is None else float(next(adjusted)) for p in p_values]


def verdict(
    estimate: PairedEstimate | None, q_value: float | None, *, noise_threshold: float, alpha: float
) -> Verdict | None:
    """Faster or slower needs both significance and a change beyond the threshold (the same factor either
    way: 1 + t and 1 / (1 + t)); same needs the whole interval inside it; anything else is inconclusive.
    Without an estimate there is none."""
    if estimate is None:
        return None
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
    half = float(special.stdtrit(logs.size - 1, 0.975) * logs.std(ddof=1) / math.sqrt(logs.size))
    return math.exp(mean), math.exp(mean - half), math.exp(mean + half)


def coefficient_of_variation(values: Column) -> float | None:
    """Standard deviation / mean; None below two values."""
    column = np.asarray(values, dtype=np.float64)
    if column.size < 2:
        return None
    mean = column.sum() / column.size
    # what column.std(ddof=1) is, without its checks: a report has ten thousand
    return float(np.sqrt(np.square(column - mean).sum() / (column.size - 1)) / mean)


def lag_1_autocorrelation(values: Column) -> float | None:
    """Correlation of each value's deviation from the mean with the next one's; None below three values."""
    column = np.asarray(values, dtype=np.float64)
    if column.size < 3:
        return None
    centred = column - column.mean()
    total = float((centred**2).sum())
    return float((centred[:-1] * centred[1:]).sum()) / total if total > 0 else None
