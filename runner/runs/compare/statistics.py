"""How a speedup and the times of a step changed from one result to another.

Two runs: times are paired within a run and not between runs.

    change = ln(speedup in B) - ln(speedup in A)
    its variance = within A + within B + between processes

The rounds of each run give the first two parts. The third comes from a new process (memory layout, code
alignment, clocks). The interval of a run with several processes contains it. A run with one process has the
standard deviation that its own report assumes (``runner.analysis.verdicts.between``). From a change of a
time, the change that all models share is taken off (``Drift``): it is the machine's.

Two environments of a run: a round has four times, eager and compiled of A and of B. Each change is estimated
from its ratio in each round. A round that is slow on both sides cancels, and no drift is between the sides.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np

from harness.schema import Samples
from runner.analysis.estimate import Estimate, PairedEstimate
from runner.analysis.statistics import Column, Floats, paired_speedup, student
from runner.analysis.verdicts.between import ASSUMED_ACROSS
from runner.analysis.verdicts.decision import Between, difference, judged_or_none
from runner.analysis.verdicts.family import assumed_of
from runner.analysis.verdicts.pairs import FEWEST, timed_in_both
from runner.runs.compare.run import Result

SHAMOS = 1.0483  # makes the median distance a standard deviation, for normal noise
SHAMOS_EFFICIENCY = 0.86  # of the standard deviation's degrees of freedom


@dataclass(frozen=True, slots=True, kw_only=True)
class Drift:
    """The eager times of B over those of A, over the models that both timed: the pseudo-median of the ratios.

    ``spread``: a standard deviation of their logarithms over models; None below 3.
    """

    estimate: PairedEstimate
    spread: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Factors:
    """Factors B / A: of the speedup, and of the times of a step. None: unknown."""

    speedup: Estimate | None = None
    eager: Estimate | None = None
    compiled: Estimate | None = None
    rounds: int = 0  # those that timed both sides; 0: two runs


def factors(first: Result, second: Result, moved: Drift | None) -> Factors:
    """From the rounds that timed both sides, or from two runs."""
    shared = shared_rounds(first, second)
    if shared is not None:
        return shared

    def time(times: Callable[[Samples], Sequence[float]]) -> Estimate | None:
        timed = [r.record.samples for r in (first, second) if r.comparison.estimate]
        sides = [times(samples) for samples in timed if samples]
        return beyond_drift(sides[0], sides[1], moved) if moved and len(sides) == 2 else None

    return Factors(
        speedup=difference(first.speedup, second.speedup),
        eager=time(lambda samples: samples.baseline_s),
        compiled=time(lambda samples: samples.candidate_s) if first.passed and second.passed else None,
    )


def drift(logs: Sequence[float]) -> Drift | None:
    """From ln(eager time in B / eager time in A) of each model; None without a model."""
    if not logs:
        return None
    return Drift(
        estimate=paired_speedup(np.exp(logs), np.ones(len(logs))),
        spread=shamos(logs) if len(logs) >= 3 else None,
    )


def beyond_drift(before: Sequence[float], after: Sequence[float], moved: Drift) -> Estimate | None:
    """The change of the median of these times, beyond the drift that all models share.

    Its error combines the error within the runs and the spread of eager over the models: a model's time
    also varies without a cause. None if this spread is unknown.
    """
    if moved.spread is None:
        return None
    models = moved.estimate.n
    variance = moved.spread**2 * (1 + 1 / models)
    for times in (before, after):  # of the logarithm of a median
        variance += math.pi / 2 * shamos(np.log(times)) ** 2 / len(times) if len(times) > 2 else 0.0
    change = math.log(median(after) / median(before)) - moved.estimate.log
    return student(change, [(variance, max(1.0, SHAMOS_EFFICIENCY * (models - 1)))])


def shamos(values: Column) -> float:
    """A robust standard deviation of two or more values: the median of all distances (Shamos 1976).

    It stays valid if up to 29 % of the models changed.
    """
    column = np.asarray(values, dtype=np.float64)
    rows, columns = np.triu_indices(column.size, 1)
    return SHAMOS * float(np.median(np.abs(column[rows] - column[columns])))


def shared_rounds(first: Result, second: Result) -> Factors | None:
    """None for two runs, and below ``FEWEST`` rounds, which have no interval."""
    if first.shares is None or first.shares != second.shares or not (first.passed and second.passed):
        return None
    before, after = _by_round(first), _by_round(second)
    rounds, by_process = timed_in_both(before, after)
    if len(rounds) < FEWEST:
        return None

    def factor(newer: Floats, older: Floats, tau: float) -> Estimate | None:
        return judged_or_none(newer, older, by_process, Between(assumed_sd=tau))

    (eager_a, compiled_a), (eager_b, compiled_b) = (
        np.array([side[key] for key in rounds]).T for side in (before, after)
    )
    tau = math.hypot(assumed_of(first.record), assumed_of(second.record))
    return Factors(
        speedup=factor(eager_b / compiled_b, eager_a / compiled_a, tau),
        eager=factor(eager_b, eager_a, ASSUMED_ACROSS),
        compiled=factor(compiled_b, compiled_a, ASSUMED_ACROSS),
        rounds=len(rounds),
    )


def _by_round(result: Result) -> Mapping[tuple[int, int], tuple[float, float]]:
    """The seconds of eager and compiled; empty if the rounds have no number."""
    samples = result.record.samples
    if samples is None or len(samples.round_index) != len(samples):
        return {}
    rounds = zip(samples.process_of_round, samples.round_index, strict=True)
    return dict(zip(rounds, zip(samples.baseline_s, samples.candidate_s, strict=True), strict=True))
