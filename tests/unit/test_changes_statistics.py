"""Two runs of the same speedups must not be told apart, and a change must be: by simulation, fixed seeds."""

import math
from collections.abc import Sequence

import numpy as np
import pytest

from runner.analysis.estimate import Estimate, Limits, PairedEstimate, Reason
from runner.analysis.statistics import mean_of_logs
from runner.analysis.verdicts.decision import Between, difference, judged, verdict
from runner.analysis.verdicts.reasons import why_open
from tests.factories import known

ASSUMED = 0.006
ROUNDS = 20
WITHIN = 0.03  # standard deviation of a round's log-ratio


def one_run(rng: np.random.Generator, truth: float, tau: float) -> PairedEstimate:
    """A run's speedup as the program estimates it: one process, ROUNDS rounds."""
    logs = rng.normal(truth + rng.normal(0, tau), WITHIN, ROUNDS)
    return judged(np.exp(logs), np.ones(ROUNDS), between=Between(assumed_sd=ASSUMED))


def change(first: PairedEstimate, second: PairedEstimate) -> Estimate:
    return known(difference(first, second))


@pytest.mark.parametrize(
    ("tau", "least", "most"), [(0.0, 0.95, 1.0), (ASSUMED, 0.93, 0.97), (0.03, 0.0, 0.7)]
)
def test_intervals_hold_the_truth_if_processes_vary_as_the_records_say(
    tau: float, least: float, most: float
) -> None:
    """The last row is what the variation is for: without it, most differences of processes look real."""
    rng = np.random.default_rng(5)
    changes = [change(one_run(rng, 0.3, tau), one_run(rng, 0.4, tau)) for _ in range(600)]
    assert least <= np.mean([one.within(math.exp(0.1)) for one in changes]) <= most


def test_the_variation_of_several_processes_is_in_their_interval() -> None:
    logs = np.random.default_rng(7).normal(0.3, WITHIN, 3 * ROUNDS)
    several = judged(np.exp(logs), np.ones(3 * ROUNDS), (ROUNDS,) * 3, Between(assumed_sd=ASSUMED))
    assert change(several, several).error == pytest.approx(math.sqrt(2) * known(several.error))
    alone = one_run(np.random.default_rng(7), 0.3, 0.0)
    assert change(alone, alone).error == pytest.approx(math.sqrt(2) * math.hypot(known(alone.error), ASSUMED))


@pytest.mark.parametrize(
    ("by", "noise", "tau", "reason"),
    [
        (0.0, 0.004, 0.003, None),  # same
        (0.2, 0.004, 0.003, None),  # improved
        (0.0, 0.1, 0.003, Reason.ROUNDS),
        (0.01, 0.004, 0.011, Reason.PROCESSES),
    ],
)
def test_an_open_change_says_what_reaches_across_the_threshold(
    by: float, noise: float, tau: float, reason: Reason | None
) -> None:
    limits, rng = Limits(threshold=0.02, alpha=0.05), np.random.default_rng(1)
    centered = rng.normal(0, noise, ROUNDS)
    logs = centered - np.median(centered)
    first, second = (
        judged(np.exp(logs + log), np.ones(ROUNDS), between=Between(assumed_sd=tau)) for log in (0.0, by)
    )
    moved = change(first, second)
    word = verdict(moved, moved.p_value, limits)
    assert why_open(moved, (first, second), word, limits) is reason


def chances(values: Sequence[float]) -> float:
    found = known(mean_of_logs(values))
    return found.p_value


def test_the_mean_of_logs_over_models() -> None:
    assert mean_of_logs([0.1]) is None
    assert chances([0.1, 0.11, 0.09, 0.1]) < 0.001
    assert chances([0.1, -0.11, 0.09, -0.1]) > 0.5
    assert chances([0.0, 0.0]) == 1.0
