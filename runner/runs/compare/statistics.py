"""How a speedup and the times of a step changed from one result to another.

Two runs: times are paired within a run and not between runs.

    change = ln(speedup in B) - ln(speedup in A)
    its variance = within A + within B + between processes

The rounds of each run give the first two parts. The third comes from a new process (memory layout, code
alignment, clocks). The interval of a run with several processes contains it. A run with one process has the
standard deviation that its own report assumes (``runner.analysis.verdicts.between``). Times of two runs have
no change with an interval: the machine may have slowed one model.

Two environments of a run: a round has four times, eager and compiled of A and of B. Each change is estimated
from its ratio in each round. A round that is slow on both sides cancels, and no drift is between the sides.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from runner.analysis.estimate import Estimate
from runner.analysis.statistics import Floats
from runner.analysis.verdicts.between import ASSUMED_ACROSS
from runner.analysis.verdicts.decision import Between, difference, judged_or_none
from runner.analysis.verdicts.family import assumed_of
from runner.analysis.verdicts.pairs import FEWEST, timed_in_both
from runner.runs.compare.run import Result


@dataclass(frozen=True, slots=True, kw_only=True)
class Factors:
    """Factors B / A: of the speedup and, of shared rounds, of the times of a step. None: unknown."""

    speedup: Estimate | None = None
    eager: Estimate | None = None
    compiled: Estimate | None = None
    rounds: int = 0  # those that timed both sides; 0: two runs


def factors(first: Result, second: Result) -> Factors:
    """From the rounds that timed both sides, or from two runs."""
    shared = shared_rounds(first, second)
    return Factors(speedup=difference(first.speedup, second.speedup)) if shared is None else shared


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
