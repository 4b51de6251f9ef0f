"""Two environments of one run: both sides were timed in the same rounds, so their times are paired.

A round has four times: eager and compiled, of A and of B. The change of a speedup is estimated from
ln(eager / compiled) in B minus the same in A, round by round. The change of a time is estimated from its
ratio in each round. A round that is slow on both sides cancels, and no drift is between the sides.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from runner.analysis.estimate import PairedEstimate
from runner.analysis.statistics import Floats
from runner.analysis.verdicts.between import ASSUMED_ACROSS
from runner.analysis.verdicts.decision import Between, judged_or_none
from runner.analysis.verdicts.pairs import FEWEST, timed_in_both
from runner.runs.compare.run import Result, Times
from runner.runs.compare.statistics import ASSUMED_PROCESS_SD, Estimate, Uncertain, se_of_interval

OF_BOTH = math.sqrt(2) * ASSUMED_PROCESS_SD  # of the change: each side's processes add their part


@dataclass(frozen=True, slots=True, kw_only=True)
class Shared:
    """The rounds that timed both sides: columns of seconds, and the number of rounds of each process."""

    first: Floats  # one row a round: eager, compiled
    second: Floats
    by_process: tuple[int, ...]

    def __len__(self) -> int:
        return len(self.first)

    def change(self) -> Uncertain | None:
        """The change of ln(speedup), with the error of the rounds; of several processes, with theirs."""
        before, after = (side[:, 0] / side[:, 1] for side in (self.first, self.second))
        several = len(self.by_process) > 1
        found = judged_or_none(
            after, before, self.by_process, Between(assumed_sd=OF_BOTH) if several else Between()
        )
        return uncertain(found) if found is not None else None

    def eager(self) -> Estimate | None:
        """Eager's time in B over its time in A."""
        return self._time(0)

    def compiled(self) -> Estimate | None:
        return self._time(1)

    def _time(self, column: int) -> Estimate | None:
        between = Between(assumed_sd=ASSUMED_ACROSS)
        found = judged_or_none(self.second[:, column], self.first[:, column], self.by_process, between)
        if found is None:
            return None
        bounds = (found.ci_low, found.ci_high, found.low_90, found.high_90)
        low, high, low_90, high_90 = (bound for bound in bounds if bound is not None)  # from FEWEST rounds on
        return Estimate(
            factor=found.speedup,
            low=low,
            high=high,
            p_value=found.p_value,
            low_90=low_90,
            high_90=high_90,
        )


def shared_rounds(first: Result, second: Result) -> Shared | None:
    """None for two runs, and below ``FEWEST`` rounds, which have no interval."""
    one, other = first.times, second.times
    if one is None or other is None or one.job != other.job:
        return None
    before, after = _by_round(one), _by_round(other)
    rounds, by_process = timed_in_both(before, after)
    if len(rounds) < FEWEST:
        return None
    return Shared(
        first=np.array([before[key] for key in rounds]),
        second=np.array([after[key] for key in rounds]),
        by_process=by_process,
    )


def _by_round(times: Times) -> Mapping[tuple[int, int], Sequence[float]]:
    return dict(zip(times.rounds, zip(times.eager_s, times.compiled_s, strict=True), strict=True))


def uncertain(estimate: PairedEstimate) -> Uncertain | None:
    """The logarithm with the error of the rounds, without an assumed variation between processes.

    Of several processes: with the moderated variance, which has its own degrees of freedom. None if the
    rounds have no interval.
    """
    value = math.log(estimate.speedup)
    if estimate.processes > 1 and estimate.ci_low and estimate.ci_high:
        se = se_of_interval(estimate.ci_low, estimate.ci_high, estimate.df)
        return Uncertain(value=value, se=se, df=estimate.df)
    if estimate.rounds_half is None:
        return None
    half = math.exp(estimate.rounds_half)
    df = estimate.n - 1
    return Uncertain(value=value, se=se_of_interval(1 / half, half, df), df=df)
