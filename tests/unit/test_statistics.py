"""The formulas, by hand-made numbers and by properties."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Literal

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import stats

from harness.schema import Protocol
from runner.analysis.results import PairedEstimate
from runner.analysis.statistics import (
    EXACT_UP_TO,
    coefficient_of_variation,
    false_discovery,
    interval_rank,
    lag_1_autocorrelation,
    paired_speedup,
    signed_rank_p,
)
from runner.analysis.verdicts import Limits, Verdict
from runner.analysis.verdicts.decision import judged, verdict
from runner.engine.stopping import decide
from tests.factories import known, sampled

times = st.lists(st.tuples(st.floats(1e-4, 10), st.floats(1e-4, 10)), min_size=6, max_size=40)


def test_the_pseudo_median_is_the_median_of_the_walsh_averages() -> None:
    differences = [0.1, -0.2, 0.5]
    # averages: 0.1 -0.2 0.5 -0.05 0.3 0.15 -> sorted -0.2 -0.05 0.1 0.15 0.3 0.5
    paired = paired_speedup([math.exp(d) for d in differences], [1.0, 1.0, 1.0])
    assert math.log(paired.factor) == pytest.approx(0.125)


def test_published_critical_values_of_the_signed_rank_interval() -> None:
    # Hollander & Wolfe, table A.4: two-sided 95 % critical ranks (T + 1)
    ranks = {5: None, 6: 1, 8: 4, 10: 9, 20: 53, 30: 138}
    assert {n: interval_rank(n, 0.95) for n in ranks} == ranks


@pytest.mark.parametrize(
    ("baseline", "candidate"), [([], []), ([1.0], [1.0, 2.0]), ([0.0], [1.0]), ([math.nan], [1.0])]
)
def test_impossible_times_are_refused(baseline: list[float], candidate: list[float]) -> None:
    with pytest.raises(ValueError, match="times"):
        paired_speedup(baseline, candidate)


@settings(deadline=None, max_examples=200)
@given(times)
def test_interval_and_p_never_contradict_each_other(pairs: list[tuple[float, float]]) -> None:
    baseline, candidate = zip(*pairs, strict=True)
    differences = np.log(np.array(baseline) / np.array(candidate))
    magnitudes = np.abs(differences)
    averages = np.add.outer(differences, differences) / 2
    if len(set(magnitudes.tolist())) < len(pairs) or np.abs(averages).min() < 1e-12:
        return  # ties: scipy then approximates
    paired = paired_speedup(baseline, candidate)
    excludes_one = not known(paired.low) <= 1 <= known(paired.high)
    assert excludes_one == (paired.p_value < 0.05)


def test_interval_and_p_agree_for_more_rounds_than_the_exact_distribution_has() -> None:
    generator, close = np.random.default_rng(5), 0
    for _ in range(1000):
        candidate = np.exp(generator.normal(generator.uniform(0.0, 0.4), 1.0, generator.integers(61, 121)))
        paired = paired_speedup(np.ones(candidate.size), candidate)
        close += 0.04 < paired.p_value < 0.06
        assert (paired.p_value < 0.05) == (not known(paired.low) <= 1 <= known(paired.high))
    assert close > 10


@settings(deadline=None, max_examples=100)
@given(times)
def test_swapping_the_columns_inverts_everything(pairs: list[tuple[float, float]]) -> None:
    baseline, candidate = zip(*pairs, strict=True)
    forth, back = paired_speedup(baseline, candidate), paired_speedup(candidate, baseline)
    assert forth.factor == pytest.approx(1 / back.factor)
    assert known(forth.low) == pytest.approx(1 / known(back.high))
    assert forth.p_value == pytest.approx(back.p_value)


@pytest.mark.parametrize("n", [1, 2, 6, 30, 60, 61, 200])
@pytest.mark.parametrize("shift", [-0.3, 0.0, 0.3])
def test_p_is_scipys_at_any_number_of_rounds_and_with_ties(n: int, shift: float) -> None:
    differences = np.random.default_rng(n).normal(shift, 1, n)
    method: Literal["exact", "approx"] = "exact" if n <= EXACT_UP_TO else "approx"
    expected = stats.wilcoxon(differences, method=method).pvalue
    assert signed_rank_p(differences) == pytest.approx(float(expected), rel=1e-6)
    tied = np.repeat(differences, 2)
    expected = stats.wilcoxon(tied, method="approx").pvalue
    assert signed_rank_p(tied) == pytest.approx(float(expected), rel=1e-9)


def test_q_values_are_scipys() -> None:
    rng = np.random.default_rng(0)
    for size in (1, 2, 7, 300):
        p_values = np.round(rng.random(size) ** 3, 2 if size == 300 else 9)  # the long one has ties
        expected = stats.false_discovery_control(p_values, method="bh")
        assert false_discovery(p_values.tolist()) == pytest.approx(expected.tolist())


def estimate(speedup: float, low: float | None, high: float | None) -> PairedEstimate:
    interval = None if low is None or high is None else (math.log(low), math.log(high))
    return PairedEstimate(
        n=30,
        log=math.log(speedup),
        interval=interval,
        interval_90=interval,
        p_value=0.5,
        error=None,
        df=29,
        speedup_of_medians=speedup,
        baseline_median_s=1.0,
        candidate_median_s=1.0,
    )


@pytest.mark.parametrize(
    ("paired", "q", "expected"),
    [
        (estimate(1.10, 1.05, 1.15), 0.001, Verdict.FASTER),
        (estimate(0.90, 0.85, 0.95), 0.001, Verdict.SLOWER),
        (estimate(1.05, 1.01, 1.09), 0.001, Verdict.INCONCLUSIVE),  # not all of it is beyond the threshold
        (estimate(1.05, 1.03, 1.07), 0.06, Verdict.INCONCLUSIVE),
        (estimate(1.01, 1.005, 1.015), 0.001, Verdict.SAME),  # significant, but within the threshold
        (estimate(1.00, 0.99, 1.01), 0.90, Verdict.SAME),
        (estimate(1.015, 1.005, 1.025), 0.01, Verdict.INCONCLUSIVE),
        (estimate(1.50, None, None), 0.25, Verdict.INCONCLUSIVE),
        (estimate(1.00, 0.99, 1.01), None, Verdict.SAME),
        (estimate(0.981, 0.979, 0.983), 0.001, Verdict.INCONCLUSIVE),  # 1 / 1.02 = 0.9804
    ],
)
def test_verdicts(paired: PairedEstimate, q: float | None, expected: Verdict) -> None:
    assert verdict(paired, q, Limits(threshold=0.02, alpha=0.05)) is expected


def test_too_few_times_have_no_noise_figures() -> None:
    assert coefficient_of_variation([1.0]) is None
    assert lag_1_autocorrelation([1.0, 1.0]) is None


# -- how often they are right when the truth is known ------------------------------------------
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
    return known(estimate.low) <= truth <= known(estimate.high)


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
    center = paired_speedup(REAL[:, 0], REAL[:, 1]).factor
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
    paired = np.std([np.log(b.factor) for b in blocks])
    medians = np.std([np.log(b.speedup_of_medians) for b in blocks])
    assert paired < medians


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
        estimate = judged(baseline, candidate, (12,) * processes, 0.03)
        assert estimate.processes == processes
        within += holds(pooled, 1)
        over += holds(estimate, 1)
        called += estimate.p_value < 0.05
    assert 0.925 <= over / repetitions <= 0.975
    assert 0.025 <= called / repetitions <= 0.075
    assert within / repetitions < 0.9


SLOW, LONG = (pytest.mark.slow,), (pytest.mark.long,)


@pytest.mark.parametrize(
    ("sd", "repetitions", "truth", "most", "least"),
    [
        (0.03, 200, 1.2, 20, 0.91),  # 95 % less nearly three standard errors
        *(pytest.param(0.03, 600, truth, 100, 0.93, marks=SLOW) for truth in (1.0, 1.02, 1.03, 1.2)),
        *(pytest.param(sd, 3000, 1.0, 100, 0.93, marks=SLOW) for sd in (0.02, 0.05)),
        *(pytest.param(sd, 3000, 1.0, 100, 0.93, marks=LONG) for sd in (0.03, 0.04, 0.08)),
    ],
)
def test_stopping_keeps_the_coverage(
    sd: float, repetitions: int, truth: float, most: int, least: float
) -> None:
    """At a clear verdict, and when precise: the more closely, the more repetitions."""
    covered, rounds = stopped_coverage(sd, repetitions, truth, most)
    assert least <= covered <= {200: 1.0, 600: 0.98, 3000: 0.97}[repetitions]
    assert 10 <= rounds < 100 or sd > 0.03


def stopped_coverage(sd: float, repetitions: int, truth: float, most: int) -> tuple[float, float]:
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
