"""The statistics of paired samples, computed with numpy and scipy.

For round r, d_r = ln(baseline_r / candidate_r). The estimate and its interval
belong to the Wilcoxon signed-rank test, so estimate, interval and p-value never
contradict each other:

- estimate: the Hodges-Lehmann pseudo-median, the median of all Walsh averages
  (d_i + d_j) / 2, i <= j (Hodges & Lehmann 1963);
- interval: from the k-th smallest to the k-th largest Walsh average, k from the
  signed-rank null distribution (Hollander & Wolfe, Nonparametric Statistical
  Methods, section 3.3);
- p: Wilcoxon signed-rank, two-sided (Wilcoxon 1945);
- q: Benjamini & Hochberg 1995.

``runner.analysis.verdicts`` adds what rounds of one process cannot show, and decides.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import special

from runner.analysis.results import Estimate, Mean, PairedEstimate, single

Floats = NDArray[np.float64]
Numbers = Sequence[float] | NDArray[np.floating[Any]]
CONFIDENCE = 0.95
EQUIVALENCE = 0.90  # confidence of the interval for *same*: two one-sided tests at 5 %
EXACT_UP_TO = 60  # rounds; above, the normal approximation of the rank sum is accurate to 3 digits


def paired_speedup(baseline_s: Numbers, candidate_s: Numbers) -> PairedEstimate:
    """Compares two columns of times, round by round.

    Raises ``ValueError`` if a column is empty, the lengths differ, or a time is not positive and finite.
    """
    baseline, candidate = (np.asarray(column, dtype=np.float64) for column in (baseline_s, candidate_s))
    if baseline.shape != candidate.shape or baseline.ndim != 1:
        raise ValueError(f"{baseline.size} baseline times but {candidate.size} candidate times")
    if baseline.size == 0:
        raise ValueError("there are no times to compare")
    times = np.concatenate((baseline, candidate))
    if not (np.isfinite(times).all() and (times > 0).all()):
        raise ValueError("times must be positive and finite")
    differences = np.log(baseline / candidate)
    averages, n = walsh_averages(differences), int(differences.size)
    rank, rank_90 = (interval_rank(n, share) for share in (CONFIDENCE, EQUIVALENCE))
    interval = (float(averages[rank - 1]), float(averages[-rank])) if rank else None
    half = (interval[1] - interval[0]) / 2 if interval else None
    error = float(differences.std(ddof=1)) / math.sqrt(n) if n > 1 else None
    if half is not None:
        error = half / float(special.stdtrit(n - 1, (1 + CONFIDENCE) / 2))
    baseline_median, candidate_median = middle(np.sort(baseline)), middle(np.sort(candidate))
    return PairedEstimate(
        n=n,
        log=middle(averages),
        interval=interval,
        interval_90=(float(averages[rank_90 - 1]), float(averages[-rank_90])) if rank_90 else None,
        p_value=signed_rank_p(differences),
        error=error,
        df=n - 1.0,
        rounds_half=half,
        speedup_of_medians=baseline_median / candidate_median,
        baseline_median_s=baseline_median,
        candidate_median_s=candidate_median,
    )


class Part(NamedTuple):
    """A variance or a part of it, with its degrees of freedom."""

    variance: float
    df: float


def student(log: float, parts: Sequence[Part]) -> Estimate:
    """A logarithm with Student's interval. Parts of its variance add up (Welch and Satterthwaite)."""
    variance = sum(part for part, _ in parts)
    spent = sum(part**2 / df for part, df in parts)
    df, error = max(1.0, variance**2 / spent) if spent else math.inf, math.sqrt(variance)
    half, half_90 = (float(special.stdtrit(df, share)) * error for share in (0.975, 0.95))
    return Estimate(
        log=log,
        interval=(log - half, log + half),
        interval_90=(log - half_90, log + half_90),
        p_value=float(2 * special.stdtr(df, -abs(log) / error)) if error > 0 else float(log == 0),
        error=error,
        df=df,
    )


def middle(ordered: Floats) -> float:
    """The median of sorted values. np.median would sort and check them again, and stopping asks often."""
    return float(ordered[(ordered.size - 1) // 2] + ordered[ordered.size // 2]) / 2


def walsh_averages(differences: Floats) -> Floats:
    """All n(n+1)/2 averages (d_i + d_j) / 2, i <= j, sorted."""
    rows, columns = pairs(differences.size)
    averages: Floats = np.sort((differences[rows] + differences[columns]) / 2)
    return averages


pairs = lru_cache(maxsize=4)(np.triu_indices)
"""The indices i <= j of all pairs. Cached, because most records of a report have the same n."""


def interval_rank(n: int, confidence: float) -> int | None:
    """The rank k of the Walsh averages that bound the interval (see above); None if n is too small."""
    tail = (1 - confidence) / 2
    if n <= EXACT_UP_TO:
        below = int(np.searchsorted(_signed_rank_cdf(n), tail, side="right"))
    else:
        mean, variance = n * (n + 1) / 4, n * (n + 1) * (2 * n + 1) / 24
        below = 1 + math.floor(mean + float(special.ndtri(tail)) * math.sqrt(variance))
    return below if below >= 1 else None


@lru_cache(maxsize=EXACT_UP_TO + 1)
def _signed_rank_cdf(n: int) -> Floats:
    """P(W <= w) for w = 0 ... n(n+1)/2 under the null: each rank is in the sum with probability 1/2."""
    shares = np.ones(1)
    for rank in range(1, n + 1):
        shares = (np.pad(shares, (0, rank)) + np.pad(shares, (rank, 0))) / 2
    cumulative: Floats = np.cumsum(shares)
    return cumulative


def signed_rank_p(differences: Floats) -> float:
    """Two-sided Wilcoxon signed-rank p. Zero differences are dropped (Wilcoxon 1945); 1.0 if all are zero."""
    # ln(a/b) and -ln(b/a) may differ in the last bit; rounding makes them equal
    settled = np.round(differences, 12)
    informative = settled[settled != 0.0]
    if informative.size < 1:
        return 1.0
    sizes = np.abs(informative)
    order = np.argsort(sizes)
    n = int(sizes.size)
    if (np.diff(sizes[order]) == 0).any():
        from scipy import stats  # this import takes half a second, and most runs do not need it

        return float(stats.wilcoxon(informative, method="approx").pvalue)
    # scipy's result without ties, in a fiftieth of its time: a report computes ten thousand
    rank_sum = int(np.flatnonzero(informative[order] > 0).sum() + np.count_nonzero(informative > 0))
    smaller = min(rank_sum, n * (n + 1) // 2 - rank_sum)
    if n <= EXACT_UP_TO:
        return min(1.0, 2 * float(_signed_rank_cdf(n)[smaller]))
    mean, variance = n * (n + 1) / 4, n * (n + 1) * (2 * n + 1) / 24
    return float(2 * special.ndtr((smaller - mean) / math.sqrt(variance)))


def false_discovery(p_values: Sequence[float | None]) -> list[float | None]:
    """Benjamini-Hochberg q-values. A None stays None and is not in the family."""
    present = np.array([p for p in p_values if p is not None])
    order = np.argsort(present)[::-1]  # from the largest p, so that q never decreases with p
    ranks = np.arange(present.size, 0, -1)
    adjusted_down = np.minimum.accumulate(np.minimum(present[order] * (present.size / ranks), 1.0))
    adjusted = iter(adjusted_down[np.argsort(order)].tolist())
    return [None if p is None else float(next(adjusted)) for p in p_values]


def mean_of_logs(logs: Numbers) -> Estimate | None:
    """The geometric mean of factors over models, with its interval over models; None below two."""
    if len(logs) < 2:
        return None
    column = np.asarray(logs, dtype=np.float64)
    variance = float(column.var(ddof=1)) / column.size
    return replace(student(float(column.mean()), [Part(variance, column.size - 1.0)]), n=int(column.size))


def typical(values: Sequence[float]) -> Estimate:
    """The geometric mean of one or more values above 0, with its interval if there are several."""
    several = mean_of_logs([math.log(value) for value in values]) if all(v > 0 for v in values) else None
    return several or single(values[0])


def geomean(estimates: Sequence[Estimate]) -> Mean:
    if not estimates:
        return Mean()
    over = typical([estimate.factor for estimate in estimates])
    widths = [estimate.half_width for estimate in estimates if estimate.half_width is not None]
    these = Estimate(log=over.log)
    if len(widths) == len(estimates):
        half = math.hypot(*widths) / len(widths)  # independent errors add in quadrature
        these = replace(these, interval=(over.log - half, over.log + half))
    return Mean(models=len(estimates), over=over, these=these)


def wilson(passed: int, total: int) -> tuple[float, float]:
    """The interval of a pass rate (Wilson 1927). Raises ``ValueError`` without a record."""
    if total < 1:
        raise ValueError("a pass rate needs a record")
    z, share = float(special.ndtri((1 + CONFIDENCE) / 2)), passed / total
    center = (share + z * z / (2 * total)) / (1 + z * z / total)
    half = z / (1 + z * z / total) * math.sqrt(share * (1 - share) / total + z * z / (4 * total**2))
    return max(0.0, center - half), min(1.0, center + half)


def coefficient_of_variation(values: Numbers) -> float | None:
    """Standard deviation / mean; None for fewer than two values."""
    column = np.asarray(values, dtype=np.float64)
    if column.size < 2:
        return None
    mean = column.sum() / column.size
    # column.std(ddof=1) without its checks: a report computes ten thousand
    return float(np.sqrt(np.square(column - mean).sum() / (column.size - 1)) / mean)


def lag_1_autocorrelation(values: Numbers) -> float | None:
    """Correlation of successive deviations from the mean; None for fewer than three values."""
    column = np.asarray(values, dtype=np.float64)
    if column.size < 3:
        return None
    centered = column - column.mean()
    total = float((centered**2).sum())
    return float((centered[:-1] * centered[1:]).sum()) / total if total > 0 else None
