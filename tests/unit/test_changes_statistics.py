"""Two runs of the same speedups must not be told apart, and a change must be: by simulation, fixed seeds."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pytest

from runner.analysis.estimate import Estimate, PairedEstimate
from runner.analysis.statistics import mean_of_logs, student
from runner.analysis.verdicts.decision import Between, judged
from runner.runs.compare.statistics import (
    between,
    difference,
    drift,
    less_drift,
    process_noise,
    se_of_median,
    shamos,
)
from tests.factories import known

ASSUMED = 0.006
ROUNDS = 20
WITHIN = 0.03  # standard deviation of a round's log-ratio


@dataclass(frozen=True)
class Simulated:
    covered: float  # share of intervals that hold the true change
    false_alarms: float  # share of p < 0.05 where nothing changed


def one_run(rng: np.random.Generator, truth: float, tau: float) -> PairedEstimate:
    """A run's speedup as the program estimates it: one process, ROUNDS rounds."""
    logs = rng.normal(truth + rng.normal(0, tau), WITHIN, ROUNDS)
    return judged(np.exp(logs), np.ones(ROUNDS), between=Between(assumed_sd=ASSUMED))


def change(first: PairedEstimate, second: PairedEstimate) -> Estimate:
    return known(difference(first, second))


def simulate(
    *, models: int, controls: int, tau: float, changed: float = 0.0, repetitions: int = 150
) -> tuple[Simulated, str]:
    """``changed``: standard deviation of the true change of one model in four."""
    rng = np.random.default_rng([models, controls, round(tau * 1000)])
    covered, alarms, source = [], [], ""
    for _ in range(repetitions):
        truths = [rng.normal(0, changed) if rng.random() < 0.25 else 0.0 for _ in range(models)]
        runs = [(one_run(rng, 0.3, tau), one_run(rng, 0.3 + truth, tau)) for truth in truths]
        noise = process_noise(
            [one_run(rng, 0.0, tau) for _ in range(2 * controls)], [change(*pair) for pair in runs]
        )
        source = noise.source if noise is not None else ""
        for pair, truth in zip(runs, truths, strict=True):
            judged_as = known(difference(*pair, between([ASSUMED] * 2, noise)))
            covered.append(judged_as.within(math.exp(truth)))
            if truth == 0:
                alarms.append(judged_as.p_value < 0.05)
    return Simulated(covered=float(np.mean(covered)), false_alarms=float(np.mean(alarms))), source


@pytest.mark.parametrize("tau", [0.0, 0.01, 0.05])
@pytest.mark.parametrize(
    ("models", "controls", "source"), [(4, 2, "controls"), (4, 4, "controls"), (10, 0, "spread")]
)
def test_intervals_hold_the_truth_whatever_a_process_brings(
    models: int, controls: int, source: str, tau: float
) -> None:
    found, used = simulate(models=models, controls=controls, tau=tau)
    assert used == source
    assert found.covered >= 0.935
    assert found.false_alarms <= 0.065


def test_within_run_intervals_alone_would_not() -> None:
    """What the noise of a process is for: without it, most differences of two processes look real."""
    rng = np.random.default_rng(5)
    changes = [change(one_run(rng, 0.3, 0.03), one_run(rng, 0.3, 0.03)) for _ in range(200)]
    assert np.mean([found.p_value < 0.05 for found in changes]) > 0.3


def test_the_noise_is_the_larger_of_controls_and_spread() -> None:
    """Eager's processes may agree better than a compiler's: with controls alone 87.6 % were covered."""
    rng = np.random.default_rng(6)
    steady = [student(rng.normal(0, 0.0025), [(0.002**2, 19)]) for _ in range(12)]
    moving = [student(rng.normal(0, 0.015), [(0.002**2, 19)]) for _ in range(12)]
    found = known(process_noise(steady, moving))
    assert found.source == "spread"
    assert found.sd == pytest.approx(0.015 / math.sqrt(2), rel=0.5)
    other = known(process_noise(moving, steady))
    assert other.source == "controls"


def test_real_changes_of_some_models_make_intervals_wider_and_never_too_narrow() -> None:
    found, _ = simulate(models=12, controls=6, tau=0.01, changed=0.2)
    assert found.covered >= 0.93


def test_the_spread_of_changes_is_too_large_rather_than_too_small() -> None:
    found, used = simulate(models=12, controls=0, tau=0.01, changed=0.2)
    assert used == "spread"
    assert found.covered >= 0.96


def test_too_little_to_tell_leaves_what_is_assumed() -> None:
    assert process_noise([], []) is None
    found, source = simulate(models=2, controls=1, tau=ASSUMED, repetitions=400)
    assert source == ""
    assert 0.93 <= found.covered <= 0.97


def test_the_noise_is_what_is_assumed_or_what_is_shown_where_that_is_more() -> None:
    """Four controls that agree by chance do not make the noise zero; several processes show their own."""
    alike = known(process_noise([student(0.0, [(1e-6, 19)])] * 4, []))
    assert not alike.resolved
    assert between([0.006, 0.014], alike) == [(0.006**2, 20), (0.014**2, 20)]
    assert between([], alike) == []
    apart = known(process_noise([student(value, [(1e-6, 19)]) for value in (0.05, -0.04, 0.06, -0.05)], []))
    assert apart.resolved
    ((variance, df),) = between([0.006, 0.014], apart)
    assert variance == 2 * apart.variance
    assert df == pytest.approx(4, abs=0.1)


def test_welch_and_satterthwaite() -> None:
    one, other = one_run(np.random.default_rng(1), 0.1, 0.0), one_run(np.random.default_rng(2), 0.4, 0.0)
    found = change(one, other)
    assert one.error is not None
    assert other.error is not None
    assert found.log == pytest.approx(other.log - one.log)
    assert found.error == pytest.approx(math.hypot(one.error, other.error))
    lopsided = student(0.3, [(0.02**2, 9), (4e-12, 9)])
    assert lopsided.df == pytest.approx(9, rel=0.01)
    assert student(0.3, [(0.02**2, 9), (0.02**2, 9)]).df == pytest.approx(18)


def test_shamos_is_the_standard_deviation_and_keeps_its_sense() -> None:
    values = np.random.default_rng(1).normal(0, 2, 2000)
    assert shamos(values) == pytest.approx(2, rel=0.05)
    values[: len(values) // 5] += 1000  # a fifth of the models really changed
    assert shamos(values) < 4
    with pytest.raises(ValueError, match="two values"):
        shamos([1.0])


def test_the_error_of_a_median() -> None:
    rng = np.random.default_rng(2)
    medians = [math.log(np.median(np.exp(rng.normal(0, 0.1, 30)))) for _ in range(500)]
    claimed = [se_of_median(np.exp(rng.normal(0, 0.1, 30)).tolist()) for _ in range(500)]
    assert np.mean([c for c in claimed if c is not None]) == pytest.approx(np.std(medians), rel=0.1)
    assert se_of_median([1.0, 1.0]) is None


def test_drift_is_the_middle_of_the_models_with_its_interval_and_spread() -> None:
    logs = np.random.default_rng(3).normal(math.log(1.1), 0.05, 40).tolist()
    found = known(drift(logs))
    assert found.models == 40
    assert found.factor == pytest.approx(1.1, rel=0.02)
    assert found.low is not None
    assert found.high is not None
    assert found.low < 1.1 < found.high
    assert found.spread == pytest.approx(0.05, rel=0.3)
    assert drift([]) is None
    alone = known(drift([0.1]))
    assert (alone.low, alone.high, alone.spread) == (None, None, None)


@pytest.mark.parametrize("spread", [0.0, 0.1])
def test_a_time_beyond_the_drift_is_as_sure_as_eager_is_steady(spread: float) -> None:
    """Under the null: every model drifts by 30 % and wanders by ``spread``; 5 % look changed."""
    rng = np.random.default_rng(4)
    alarms = []
    for _ in range(200):
        models = known(drift((math.log(1.3) + rng.normal(0, spread, 12) + rng.normal(0, 0.01, 12)).tolist()))
        found = known(less_drift(math.log(1.3) + rng.normal(0, spread) + rng.normal(0, 0.01), (), (), models))
        alarms.append(found.p_value < 0.05)
    assert np.mean(alarms) <= 0.085


def chances(values: Sequence[float]) -> float:
    found = known(mean_of_logs(values))
    return found.p_value


def test_the_mean_of_logs_over_models() -> None:
    assert mean_of_logs([0.1]) is None
    assert chances([0.1, 0.11, 0.09, 0.1]) < 0.001
    assert chances([0.1, -0.11, 0.09, -0.1]) > 0.5
    assert chances([0.0, 0.0]) == 1.0
