"""Two environments of one run: both sides were timed in the same rounds, so their times are paired.

A round has four times: eager and compiled, of A and of B. The change of a speedup is estimated from
ln(eager / compiled) in B minus the same in A, round by round. The change of a time is estimated from its
ratio in each round. A round that is slow on both sides cancels, and no drift is between the sides.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from runner.analysis.estimate import Estimate
from runner.analysis.statistics import Floats, student
from runner.analysis.verdicts.between import ASSUMED_ACROSS
from runner.analysis.verdicts.decision import Between, judged_or_none
from runner.analysis.verdicts.family import assumed_of
from runner.analysis.verdicts.pairs import FEWEST, timed_in_both
from runner.runs.compare.run import Result
from runner.runs.compare.statistics import ProcessNoise, between


@dataclass(frozen=True, slots=True, kw_only=True)
class Shared:
    """The rounds that timed both sides: columns of seconds, and the number of rounds of each process.

    ``assumed``: of each side, the standard deviation between processes.
    """

    first: Floats  # one row a round: eager, compiled
    second: Floats
    by_process: tuple[int, ...]
    assumed: tuple[float, float]

    def __len__(self) -> int:
        return len(self.first)

    def change(self, noise: ProcessNoise | None = None) -> Estimate | None:
        """The change of ln(speedup). Several processes show the variation between them."""
        alone = len(self.by_process) < 2
        tau = Between() if alone else Between(assumed_sd=math.hypot(*self.assumed))
        before, after = (side[:, 0] / side[:, 1] for side in (self.first, self.second))
        change = judged_or_none(after, before, self.by_process, tau)
        if change is None or change.error is None or not alone:
            return change
        return student(change.log, [(change.error**2, change.df), *between(self.assumed, noise)])

    def eager(self) -> Estimate | None:
        """Eager's time in B over its time in A."""
        return self._time(0)

    def compiled(self) -> Estimate | None:
        return self._time(1)

    def _time(self, column: int) -> Estimate | None:
        across = Between(assumed_sd=ASSUMED_ACROSS)
        return judged_or_none(self.second[:, column], self.first[:, column], self.by_process, across)


def shared_rounds(first: Result, second: Result) -> Shared | None:
    """None for two runs, and below ``FEWEST`` rounds, which have no interval."""
    if first.shares is None or first.shares != second.shares or not (first.passed and second.passed):
        return None
    before, after = _by_round(first), _by_round(second)
    rounds, by_process = timed_in_both(before, after)
    if len(rounds) < FEWEST:
        return None
    return Shared(
        first=np.array([before[key] for key in rounds]),
        second=np.array([after[key] for key in rounds]),
        by_process=by_process,
        assumed=(assumed_of(first.record), assumed_of(second.record)),
    )


def _by_round(result: Result) -> Mapping[tuple[int, int], tuple[float, float]]:
    """The seconds of eager and compiled; empty if the rounds have no number."""
    samples = result.record.samples
    if samples is None or len(samples.round_index) != len(samples):
        return {}
    rounds = zip(samples.process_of_round, samples.round_index, strict=True)
    return dict(zip(rounds, zip(samples.baseline_s, samples.candidate_s, strict=True), strict=True))
