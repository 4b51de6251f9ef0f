"""The statistics of two separate runs, computed with scipy.

Times are paired within a run and not between runs. The change of one speedup is

    change = ln(speedup in B) - ln(speedup in A)
    its variance = within A + within B + between processes

The rounds of each run give the first two variances. The third comes from a new
process (memory layout, code alignment, clocks). Rounds in one process cannot show
it; ``process_noise`` lists its sources.

Location and spread over models are the Hodges-Lehmann pseudo-median and the
Shamos estimator (Shamos 1976: the median of all pairwise distances). Both stay
valid if up to 29 % of the models changed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import special

from runner.analysis.statistics import Floats, interval_rank, walsh_averages

SHAMOS = 1.0483  # makes the median distance a standard deviation, for normal noise
SHAMOS_EFFICIENCY = 0.86  # of the standard deviation's degrees of freedom
CONFIDENCE = 0.95
LEAST_CONTROLS = 4  # A/A values; fewer are too few for a variance
LEAST_CHANGES = 8  # models; fewer are too few for a variance
ASSUMED_PROCESS_SD = 0.02  # of ln(speedup), if the runs have too few controls and models


@dataclass(frozen=True, slots=True, kw_only=True)
class Uncertain:
    """A number with its standard error and the degrees of freedom of this error."""

    value: float
    se: float
    df: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """A factor with its 95 % interval, its 90 % interval (for *same*), and the two-sided p against 1."""

    factor: float
    low: float
    high: float
    p_value: float
    low_90: float
    high_90: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessNoise:
    """The variance that a separate process adds to the log speedup of one run.

    ``variance_sd`` is the standard error of the variance. ``source``: "controls",
    "spread" or "assumed"; ``count``: the number of values behind it.
    """

    variance: float
    variance_sd: float
    source: str
    count: int

    @property
    def sd(self) -> float:
        return math.sqrt(self.variance)


@dataclass(frozen=True, slots=True, kw_only=True)
class Drift:
    """The ratio of the eager times of two runs, over the models that both timed.

    ``factor``: time in B / time in A. The interval is None below 6 models, ``spread``
    (a standard deviation of logarithms over models) below 3.
    """

    models: int
    factor: float
    low: float | None
    high: float | None
    spread: float | None


def shamos(values: Sequence[float] | Floats) -> float:
    """A robust standard deviation. Raises ``ValueError`` for fewer than two values."""
    column = np.asarray(values, dtype=np.float64)
    if column.size < 2:
        raise ValueError("a spread needs two values")
    rows, columns = np.triu_indices(column.size, 1)
    return SHAMOS * float(np.median(np.abs(column[rows] - column[columns])))


def se_of_interval(low: float, high: float, df: float) -> float:
    """The standard error of a logarithm, from the 95 % interval of the factor.

    ``df``: the interval's degrees of freedom, at least 1.
    """
    return math.log(high / low) / 2 / float(special.stdtrit(df, (1 + CONFIDENCE) / 2))


def se_of_mean(logs: Sequence[float] | Floats) -> float:
    """The standard error of the mean of n >= 2 logarithms, for too few rounds for an interval."""
    column = np.asarray(logs, dtype=np.float64)
    return float(column.std(ddof=1)) / math.sqrt(column.size)


def se_of_median(times: Sequence[float]) -> float | None:
    """The standard error of the log median time; None for fewer than three times."""
    if len(times) < 3:
        return None
    return math.sqrt(math.pi / 2) * shamos(np.log(times)) / math.sqrt(len(times))


def process_noise(
    controls: Sequence[Uncertain], changes: Sequence[Uncertain], *, least_changes: int = LEAST_CHANGES
) -> ProcessNoise:
    """The variance between processes: the larger of what the controls and the changes show.

    ``controls``: log speedups of the A/A controls of both runs, which would all be 0 without noise.
    ``changes``: changes of the log speedups of all models, each with its error within the runs. Their spread
    also contains real changes, so it is an upper bound. With too few values of both kinds, the variance is
    ``ASSUMED_PROCESS_SD`` squared.
    """
    found = [one for one in (_of_controls(controls), _of_spread(changes, least_changes)) if one is not None]
    if found:
        return max(found, key=lambda one: one.variance)
    return ProcessNoise(variance=ASSUMED_PROCESS_SD**2, variance_sd=0.0, source="assumed", count=0)


def _of_controls(controls: Sequence[Uncertain]) -> ProcessNoise | None:
    if len(controls) >= LEAST_CONTROLS:
        total = float(np.mean([c.value**2 for c in controls]))
        within = float(np.mean([c.se**2 for c in controls]))
        sd = total * math.sqrt(2 / len(controls))
        return ProcessNoise(
            variance=max(0.0, total - within), variance_sd=sd, source="controls", count=len(controls)
        )
    return None


def _of_spread(changes: Sequence[Uncertain], least_changes: int) -> ProcessNoise | None:
    if len(changes) >= least_changes:
        total = shamos([c.value for c in changes]) ** 2
        within = float(np.median([c.se**2 for c in changes]))
        sd = total * math.sqrt(2 / (SHAMOS_EFFICIENCY * (len(changes) - 1)))
        # a change has the noise of two processes
        return ProcessNoise(
            variance=max(0.0, total - within) / 2, variance_sd=sd / 2, source="spread", count=len(changes)
        )
    return None


def difference(first: Uncertain, second: Uncertain) -> Uncertain:
    """second - first, with the error of both; degrees of freedom after Welch and Satterthwaite."""
    variance = first.se**2 + second.se**2
    spent = sum(part.se**4 / part.df for part in (first, second))
    df = variance**2 / spent if spent else math.inf
    return Uncertain(value=second.value - first.value, se=math.sqrt(variance), df=df)


def with_noise(change: Uncertain, noise: ProcessNoise, processes: int = 2) -> Uncertain:
    """The change, with the variance between processes for runs whose intervals do not include it."""
    variance = change.se**2 + processes * noise.variance
    # variances of the two parts of the variance; a chi-square of f degrees has 2 V^2 / f
    of_variance = 2 * change.se**4 / change.df + (processes * noise.variance_sd) ** 2
    df = 2 * variance**2 / of_variance if of_variance else math.inf
    return Uncertain(value=change.value, se=math.sqrt(variance), df=max(1.0, df))


def estimate(number: Uncertain) -> Estimate:
    """The change as a factor, with interval and p of Student's t."""
    if number.se == 0:
        p_value = 1.0 if number.value == 0 else 0.0
        factor = math.exp(number.value)
        return Estimate(
            factor=factor, low=factor, high=factor, p_value=p_value, low_90=factor, high_90=factor
        )
    half, half_90 = (float(special.stdtrit(number.df, (1 + c) / 2)) * number.se for c in (CONFIDENCE, 0.90))
    return Estimate(
        factor=math.exp(number.value),
        low=math.exp(number.value - half),
        high=math.exp(number.value + half),
        p_value=float(2 * special.stdtr(number.df, -abs(number.value) / number.se)),
        low_90=math.exp(number.value - half_90),
        high_90=math.exp(number.value + half_90),
    )


def drift(logs: Sequence[float]) -> Drift | None:
    """From ln(eager time in B / eager time in A) of each model; None without a model."""
    if not logs:
        return None
    column = np.asarray(logs, dtype=np.float64)
    averages = walsh_averages(column)
    rank = interval_rank(column.size, CONFIDENCE)
    return Drift(
        models=int(column.size),
        factor=math.exp(float(np.median(averages))),
        low=math.exp(averages[rank - 1]) if rank else None,
        high=math.exp(averages[-rank]) if rank else None,
        spread=shamos(column) if column.size >= 3 else None,
    )


def less_drift(log_time: float, se: float, known: Drift) -> Uncertain | None:
    """A change of a time (ln B / A) beyond the drift that all models share.

    Its error combines the error within the runs and the spread of eager over the models: a model's time
    also varies without a cause. None if this spread is unknown.
    """
    if known.spread is None:
        return None
    between = known.spread**2 * (1 + 1 / known.models)
    df = SHAMOS_EFFICIENCY * (known.models - 1)
    return Uncertain(value=log_time - math.log(known.factor), se=math.sqrt(se**2 + between), df=max(1.0, df))


def mean_change(logs: Sequence[float]) -> Estimate | None:
    """The geometric mean of factors over models, with its interval over models; None below two."""
    if len(logs) < 2:
        return None
    column = np.asarray(logs, dtype=np.float64)
    se = float(column.std(ddof=1)) / math.sqrt(column.size)
    return estimate(Uncertain(value=float(column.mean()), se=se, df=column.size - 1))
