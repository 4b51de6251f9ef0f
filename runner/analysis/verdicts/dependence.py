"""What protects a verdict where rounds depend on each other: wider intervals, and the guard.

The signed-rank interval assumes independent rounds. Lag-1 dependence beyond chance widens it by the
effective number of rounds, n (1 - r) / (1 + r). A trend, a difference between the halves of the rounds, or
two regimes mean that the rounds have no common speedup; ``Steadiness.unsteady`` then says so.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from runner.analysis.statistics import Floats, lag_1_autocorrelation, middle
from runner.analysis.verdicts import Reason

FEWEST = 10  # rounds; fewer show no dependence
BEYOND_CHANCE = 1.645  # standard errors of a lag-1 autocorrelation: one independent sequence in 20
TREND = 2.807  # two-sided p = 0.005 of each test for a trend and for halves
MOST_CORRELATION = 0.95  # keeps the widening finite
APART = 3.0  # the distance of two regimes, in standard deviations within them
FEWEST_OF_REGIME = 4
SWITCHES = 3.1  # standard errors that the number of switches is below that of independent rounds


class Steadiness(NamedTuple):
    """Whether the rounds have a common speedup, as fields of an ``Estimate``.

    ``segments``: log speedups of parts of the rounds (both halves; both regimes, if there are two).
    """

    unsteady: str = ""
    unsteady_kind: Reason | None = None
    segments: tuple[float, ...] = ()


def widening(logs: Floats) -> float:
    """The factor on the width of an interval: the root of n / effective n; 1 without dependence.

    The lag-1 autocorrelation is corrected for its bias, about -(1 + 4 r) / n (Marriott & Pope 1954).
    """
    n = logs.size
    if n < FEWEST:
        return 1.0
    lag_1 = lag_1_autocorrelation(logs)
    if lag_1 is None or (lag_1 + 1 / n) * math.sqrt(n) <= BEYOND_CHANCE:
        return 1.0
    r = min(MOST_CORRELATION, (lag_1 + 1 / n) / (1 - 4 / n))
    return math.sqrt((1 + r) / (1 - r))


def steadiness(processes: Sequence[Floats]) -> Steadiness:
    """The guard on the log ratios of each process's rounds, in measured order.

    Several processes are judged together: what all of them have in common, such as a start that settles, is
    not a difference between them, and more processes would not remove it.
    """
    long = [logs for logs in processes if logs.size >= FEWEST]
    if not long:
        return Steadiness()
    halves = [[middle(np.sort(half)) for half in np.split(logs, [logs.size // 2])] for logs in long]
    first, second = (sum(pair[side] for pair in halves) / len(halves) for side in (0, 1))
    segments = (first, second)
    scores = [_scores(logs) for logs in long]
    trend, moved = (sum(pair[side] for pair in scores) / math.sqrt(len(scores)) for side in (0, 1))
    if abs(trend) > TREND:
        both = f"{_ratio(first)} in the first half of the rounds, {_ratio(second)} in the second"
        return Steadiness(f"the speedup drifts ({both})", Reason.TREND, segments)
    if abs(moved) > TREND:
        reason = f"the halves of the rounds differ ({_ratio(first)} and {_ratio(second)})"
        return Steadiness(reason, Reason.HALVES, segments)
    for low, high in filter(None, map(regimes, long)):
        reason = f"the rounds have two regimes ({_ratio(low)} and {_ratio(high)})"
        return Steadiness(reason, Reason.REGIMES, (*segments, low, high))
    return Steadiness(segments=segments)


def regimes(logs: Floats) -> tuple[float, float] | None:
    """The centers of two regimes that rounds stay in for a while; None if there is one.

    The rounds are split where the variance within the two parts is smallest. They are regimes if the parts
    lie apart and the rounds switch between them less often than independent rounds would (the runs test of
    Wald & Wolfowitz 1940).
    """
    n, ordered = logs.size, np.sort(logs)
    counts = np.arange(1, n)
    sums, squares = np.cumsum(ordered)[:-1], np.cumsum(ordered**2)[:-1]
    below = squares - sums**2 / counts
    rest = ordered.sum() - sums
    above = float((ordered**2).sum()) - squares - rest**2 / (n - counts)
    few = (counts < FEWEST_OF_REGIME) | (n - counts < FEWEST_OF_REGIME)
    inside = np.where(few, np.inf, below + above)
    split = int(np.argmin(inside))
    if not math.isfinite(inside[split]):
        return None
    low, high = float(sums[split] / counts[split]), float(rest[split] / (n - counts[split]))
    if high - low <= APART * math.sqrt(max(0.0, float(inside[split])) / max(1, n - 2)):
        return None
    upper = logs > ordered[split]
    runs = 1 + int(np.count_nonzero(upper[1:] != upper[:-1]))
    ones, zeros = int(counts[split]), n - int(counts[split])
    mean = 1 + 2 * ones * zeros / n
    variance = (mean - 1) * (mean - 2) / (n - 1)
    if variance <= 0 or (mean - runs - 0.5) / math.sqrt(variance) <= SWITCHES:
        return None
    return low, high


def _scores(logs: Floats) -> tuple[float, float]:
    """Standard scores of a trend (Spearman) and of a shift between the halves (rank sum)."""
    n = logs.size
    _, which, counts = np.unique(logs, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(counts) - (counts - 1) / 2)[which]  # ties share their mean rank
    places = np.arange(n) - (n - 1) / 2
    trend = 12 * float(ranks @ places) / (n * (n * n - 1.0)) * math.sqrt(n - 1)
    half, rest = n // 2, n - n // 2
    shift = float(ranks[half:].sum()) - rest * (n + 1) / 2
    return trend, shift / math.sqrt(half * rest * (n + 1) / 12)


def _ratio(log: float) -> str:
    return f"{math.exp(log):.3f}x"
