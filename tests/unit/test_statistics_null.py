"""The statistics tested as statistics: how often they are right when the truth is known."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from harness.schema import Protocol
from runner.analysis.estimate import PairedEstimate
from runner.analysis.statistics import paired_speedup
from runner.analysis.verdicts.decision import Between, judged
from runner.engine.stopping import decide
from tests.factories import known, sampled

Floats = NDArray[np.float64]
Columns = tuple[Floats, Floats]
Generator = np.random.Generator

REAL = np.load(Path(__file__).parent.parent / "data" / "aa_resnet18_4.npy")
"""1,200 pairs of seconds: one eager training step timed against itself, alternately, on a shared machine."""

REPETITIONS = 1500


def normal(rng: Generator, n: int) -> Columns:
    return np.exp(rng.normal(0, 0.04, n)), np.exp(rng.normal(0, 0.04, n))


def heavy_tailed(rng: Generator, n: int) -> Columns:
    return np.exp(0.03 * rng.standard_t(2, n)), np.exp(0.03 * rng.standard_t(2, n))


def spiky(rng: Generator, n: int) -> Columns:
    """Mostly quiet, with interruptions that only ever slow a sample down."""
    noise = np.abs(rng.normal(0, 0.02, (2, n))) + rng.exponential(0.5, (2, n)) * (rng.random((2, n)) < 0.1)
    return np.exp(noise[0]), np.exp(noise[1])


KINDS = (normal, heavy_tailed, spiky)


def holds(estimate: PairedEstimate, truth: float) -> bool:
    return known(estimate.ci_low) <= truth <= known(estimate.ci_high)


# 1,500 repetitions of a 5 % event have a standard error of 0.56 %: +-2 % is beyond three of them
@pytest.mark.parametrize(("kind", "n"), sampled(2, KINDS, (10, 30, 100)))
@pytest.mark.series
def test_under_the_null_p_and_interval_hold(kind: Callable[[Generator, int], Columns], n: int) -> None:
    rng = np.random.default_rng(20261121)
    estimates = [paired_speedup(*kind(rng, n)) for _ in range(REPETITIONS)]
    assert 0.93 <= np.mean([holds(estimate, 1.0) for estimate in estimates]) <= 0.97
    assert 0.03 <= np.mean([estimate.p_value < 0.05 for estimate in estimates]) <= 0.07


def test_what_both_sides_of_a_pair_share_cancels() -> None:
    """The machine wanders by tens of percent; both sides of a pair see the same."""
    rng = np.random.default_rng(6)
    first, second = normal(rng, 30)
    drift = np.exp(np.cumsum(rng.normal(0, 0.06, 30)))
    steady, drifting = paired_speedup(first, second), paired_speedup(first * drift, second * drift)
    assert drifting.interval == pytest.approx(known(steady.interval))
    assert drifting.p_value == pytest.approx(steady.p_value)


def test_intervals_of_real_pairs_hold_the_long_runs_value() -> None:
    """On real A/A data: of 30 consecutive pairs, 94-98 % of the time."""
    center = paired_speedup(REAL[:, 0], REAL[:, 1]).speedup
    covered = [
        holds(paired_speedup(REAL[start : start + 30, 0], REAL[start : start + 30, 1]), center)
        for start in range(0, len(REAL) - 30, 5)
    ]
    assert np.mean(covered) >= 0.92


def test_real_pairs_in_random_order_give_uniform_p() -> None:
    """Each pair's sides swapped by a coin: the random order of the rounds, which makes the null exact."""
    rng = np.random.default_rng(5)
    p_values = []
    for _ in range(300):
        start = int(rng.integers(0, len(REAL) - 30))
        block = REAL[start : start + 30]
        swapped = np.where(rng.random((30, 1)) < 0.5, block, block[:, ::-1])
        p_values.append(paired_speedup(swapped[:, 0], swapped[:, 1]).p_value)
    assert stats.kstest(p_values, "uniform").pvalue > 0.01
    assert 0.02 <= np.mean(np.array(p_values) < 0.05) <= 0.09


def test_the_paired_estimate_spreads_less_than_the_ratio_of_medians() -> None:
    blocks = [paired_speedup(REAL[i : i + 30, 0], REAL[i : i + 30, 1]) for i in range(0, len(REAL) - 30, 3)]
    paired = np.std([np.log(b.speedup) for b in blocks])
    medians = np.std([np.log(b.speedup_of_medians) for b in blocks])
    assert paired < medians


def test_stopping_at_a_clear_verdict_keeps_the_coverage() -> None:
    covered, _ = stopped_coverage(0.03, 200, 1.2, most=20)
    assert covered >= 0.91  # 95 % less nearly three standard errors


@pytest.mark.slow
@pytest.mark.parametrize("truth", [1.0, 1.02, 1.03, 1.2])
def test_stopping_at_a_clear_verdict_keeps_the_coverage_closely(truth: float) -> None:
    covered, _ = stopped_coverage(0.03, 600, truth)
    assert 0.93 <= covered <= 0.98


@pytest.mark.parametrize("processes", [3, 5, 10])
@pytest.mark.series
def test_the_interval_over_processes_holds_what_varies_between_them(processes: int) -> None:
    """Each process has a speedup of its own, 3 % about 1; an interval from its rounds alone misses 1."""
    rng = np.random.default_rng(17)
    repetitions, within, over, called = 500, 0, 0, 0
    for _ in range(repetitions):
        columns = [normal(rng, 12) for _ in range(processes)]
        shifts = np.exp(rng.normal(0, 0.03, processes))
        baseline = np.concatenate([shift * b for shift, (b, _) in zip(shifts, columns, strict=True)])
        candidate = np.concatenate([c for _, c in columns])
        pooled = paired_speedup(baseline, candidate)
        spread = Between(assumed_sd=0.03)
        estimate = judged(baseline, candidate, (12,) * processes, spread)
        assert estimate.processes == processes
        within += holds(pooled, 1)
        over += holds(estimate, 1)
        called += estimate.p_value < 0.05
    assert 0.925 <= over / repetitions <= 0.975
    assert 0.025 <= called / repetitions <= 0.075
    assert within / repetitions < 0.9


@pytest.mark.parametrize(
    "sd",
    [
        *(pytest.param(sd, marks=pytest.mark.slow) for sd in (0.02, 0.05)),
        *(pytest.param(sd, marks=pytest.mark.long) for sd in (0.03, 0.04, 0.08)),
    ],
)
def test_stopping_when_precise_keeps_the_coverage_closely(sd: float) -> None:
    covered, rounds = stopped_coverage(sd, 3000)
    assert 0.93 <= covered <= 0.97
    assert 10 <= rounds < 100 or sd > 0.03


def stopped_coverage(sd: float, repetitions: int, truth: float = 1.0, most: int = 100) -> tuple[float, float]:
    """(share of final intervals that hold the truth, mean rounds) when rounds stop by the default rule."""
    rng = np.random.default_rng(13)
    covered, rounds = 0, 0
    for _ in range(repetitions):
        noise = truth * np.exp(rng.normal(0, sd, 1000))
        n = 0
        while True:
            pairs = {"x": (noise[:n].tolist(), [1.0] * n)}
            more = decide(Protocol(max_rounds=most), pairs, 0.01 * n).rounds
            if more == 0:
                break
            n += more
        estimate = paired_speedup(noise[:n], np.ones(n))
        covered += holds(estimate, truth)
        rounds += n
    return covered / repetitions, rounds / repetitions
