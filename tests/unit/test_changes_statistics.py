"""Two runs of the same speedups must not be told apart, and a change must be: by simulation, fixed seeds."""

import math
from collections.abc import Sequence

import numpy as np
import pytest

from runner.analysis.estimate import Estimate, PairedEstimate
from runner.analysis.statistics import mean_of_logs
from runner.analysis.verdicts.decision import Between, difference, judged
from runner.runs.compare.statistics import beyond_drift, drift, shamos
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


def test_shamos_is_the_standard_deviation_and_keeps_its_sense() -> None:
    values = np.random.default_rng(1).normal(0, 2, 2000)
    assert shamos(values) == pytest.approx(2, rel=0.05)
    values[: len(values) // 5] += 1000  # a fifth of the models really changed
    assert shamos(values) < 4


def test_drift_is_the_middle_of_the_models_with_its_interval_and_spread() -> None:
    logs = np.random.default_rng(3).normal(math.log(1.1), 0.05, 40).tolist()
    moved = known(drift(logs))
    assert moved.estimate.n == 40
    assert moved.estimate.factor == pytest.approx(1.1, rel=0.02)
    assert moved.estimate.within(1.1)
    assert moved.spread == pytest.approx(0.05, rel=0.3)
    assert drift([]) is None
    alone = known(drift([0.1]))
    assert (alone.estimate.interval, alone.spread) == (None, None)


@pytest.mark.parametrize("spread", [0.0, 0.1])
def test_a_time_beyond_the_drift_is_as_sure_as_eager_is_steady(spread: float) -> None:
    """Under the null: every model drifts by 30 % and wanders by ``spread``; 5 % look changed."""
    rng = np.random.default_rng(4)
    alarms = []
    for _ in range(200):
        models = known(drift((math.log(1.3) + rng.normal(0, spread, 12) + rng.normal(0, 0.01, 12)).tolist()))
        after = 1.3 * math.exp(rng.normal(0, spread) + rng.normal(0, 0.01))
        alarms.append(known(beyond_drift([1.0], [after], models)).p_value < 0.05)
    assert np.mean(alarms) <= 0.085


def chances(values: Sequence[float]) -> float:
    found = known(mean_of_logs(values))
    return found.p_value


def test_the_mean_of_logs_over_models() -> None:
    assert mean_of_logs([0.1]) is None
    assert chances([0.1, 0.11, 0.09, 0.1]) < 0.001
    assert chances([0.1, -0.11, 0.09, -0.1]) > 0.5
    assert chances([0.0, 0.0]) == 1.0
