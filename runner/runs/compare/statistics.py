"""The statistics of two separate runs, computed with scipy.

Times are paired within a run and not between runs. The change of one speedup is

    change = ln(speedup in B) - ln(speedup in A)
    its variance = within A + within B + between processes

The rounds of each run give the first two variances. The third comes from a new process (memory layout, code
alignment, clocks). Several processes of a run show it, and their interval contains it. For one process, it is
the larger of what is assumed for its compiler (``runner.analysis.verdicts.between``) and of what the A/A
controls and the models of both runs show (``process_noise``).

Location and spread over models are the Hodges-Lehmann pseudo-median and the Shamos estimator (Shamos 1976:
the median of all pairwise distances). Both stay valid if up to 29 % of the models changed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from runner.analysis.estimate import Estimate, PairedEstimate
from runner.analysis.statistics import Floats, Part, interval_rank, student, walsh_averages
from runner.analysis.verdicts.decision import TAU_DF

SHAMOS = 1.0483  # makes the median distance a standard deviation, for normal noise
SHAMOS_EFFICIENCY = 0.86  # of the standard deviation's degrees of freedom
LEAST_CONTROLS = 4  # A/A values; fewer are too few for a variance
LEAST_CHANGES = 8  # models; fewer are too few for a variance


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessNoise:
    """The variance that a separate process adds to the log speedup of one run, as both runs show it.

    ``variance_sd`` is the standard error of the variance. ``source``: "controls" or "spread"; ``count``: the
    number of values behind it.
    """

    variance: float
    variance_sd: float
    source: str
    count: int

    @property
    def sd(self) -> float:
        return math.sqrt(self.variance)

    @property
    def resolved(self) -> bool:
        """Whether the variance can be told from zero."""
        return self.variance > self.variance_sd


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


def se_of_median(times: Sequence[float]) -> float | None:
    """The standard error of the log median time; None for fewer than three times."""
    if len(times) < 3:
        return None
    return math.sqrt(math.pi / 2) * shamos(np.log(times)) / math.sqrt(len(times))


def process_noise(controls: Sequence[Estimate], changes: Sequence[Estimate]) -> ProcessNoise | None:
    """The variance between processes: the larger of what the controls and the changes show.

    ``controls``: log speedups of the A/A controls of both runs, which would all be 0 without noise.
    ``changes``: changes of the log speedups of all models, each with its error within the runs. Their spread
    also contains real changes, so it is an upper bound. None with too few values of both kinds.
    """
    shown = [noise for noise in (_of_controls(controls), _of_spread(changes)) if noise is not None]
    return max(shown, key=lambda noise: noise.variance, default=None)


def _of_controls(controls: Sequence[Estimate]) -> ProcessNoise | None:
    if len(controls) < LEAST_CONTROLS:
        return None
    total = float(np.mean([control.log**2 for control in controls]))
    within = float(np.mean([(control.error or 0.0) ** 2 for control in controls]))
    return ProcessNoise(
        variance=max(0.0, total - within),
        variance_sd=total * math.sqrt(2 / len(controls)),
        source="controls",
        count=len(controls),
    )


def _of_spread(changes: Sequence[Estimate]) -> ProcessNoise | None:
    if len(changes) < LEAST_CHANGES:
        return None
    total = shamos([change.log for change in changes]) ** 2
    within = float(np.median([(change.error or 0.0) ** 2 for change in changes]))
    sd = total * math.sqrt(2 / (SHAMOS_EFFICIENCY * (len(changes) - 1)))
    # a change has the noise of two processes
    return ProcessNoise(
        variance=max(0.0, total - within) / 2, variance_sd=sd / 2, source="spread", count=len(changes)
    )


def difference(first: PairedEstimate, second: PairedEstimate, more: Sequence[Part] = ()) -> Estimate | None:
    """second - first, with the errors that the samples of both show, and ``more`` parts of the variance.

    None if an error is unknown.
    """
    if first.error is None or second.error is None:
        return None
    parts = [(first.error**2, first.df), (second.error**2, second.df), *more]
    return student(second.log - first.log, parts)


def between(assumed: Sequence[float], noise: ProcessNoise | None) -> Sequence[Part]:
    """The variance between processes. ``assumed``: the standard deviation of each side with one process."""
    if noise is not None and len(assumed) * noise.variance > sum(sd**2 for sd in assumed):
        df = 2 * (noise.variance / noise.variance_sd) ** 2
        return [(len(assumed) * noise.variance, df)]
    return [(sd**2, TAU_DF) for sd in assumed]


def drift(logs: Sequence[float]) -> Drift | None:
    """From ln(eager time in B / eager time in A) of each model; None without a model."""
    if not logs:
        return None
    column = np.asarray(logs, dtype=np.float64)
    averages = walsh_averages(column)
    rank = interval_rank(column.size, 0.95)
    return Drift(
        models=int(column.size),
        factor=math.exp(float(np.median(averages))),
        low=math.exp(averages[rank - 1]) if rank else None,
        high=math.exp(averages[-rank]) if rank else None,
        spread=shamos(column) if column.size >= 3 else None,
    )


def less_drift(
    log_time: float, before: Sequence[float], after: Sequence[float], known: Drift
) -> Estimate | None:
    """A change of a time (ln B / A, from these times) beyond the drift that all models share.

    Its error combines the error within the runs and the spread of eager over the models: a model's time
    also varies without a cause. None if this spread is unknown.
    """
    if known.spread is None:
        return None
    variance = sum((se_of_median(times) or 0.0) ** 2 for times in (before, after))
    variance += known.spread**2 * (1 + 1 / known.models)
    df = max(1.0, SHAMOS_EFFICIENCY * (known.models - 1))
    return student(log_time - math.log(known.factor), [(variance, df)])
