"""The formulas, by hand-made numbers and by properties."""

import math
from typing import Literal

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from runner.analysis.estimate import Limits, PairedEstimate, Verdict
from runner.analysis.statistics import (
    EXACT_UP_TO,
    coefficient_of_variation,
    false_discovery,
    interval_rank,
    lag_1_autocorrelation,
    paired_speedup,
    signed_rank_p,
)
from runner.analysis.verdicts.decision import verdict
from tests.factories import known

times = st.lists(st.tuples(st.floats(1e-4, 10), st.floats(1e-4, 10)), min_size=6, max_size=40)


def test_the_pseudo_median_is_the_median_of_the_walsh_averages() -> None:
    differences = [0.1, -0.2, 0.5]
    # averages: 0.1 -0.2 0.5 -0.05 0.3 0.15 -> sorted -0.2 -0.05 0.1 0.15 0.3 0.5
    paired = paired_speedup([math.exp(d) for d in differences], [1.0, 1.0, 1.0])
    assert math.log(paired.speedup) == pytest.approx(0.125)


def test_published_critical_values_of_the_signed_rank_interval() -> None:
    # Hollander & Wolfe, table A.4: two-sided 95 % critical ranks (T + 1)
    ranks = {5: None, 6: 1, 8: 4, 10: 9, 20: 53, 30: 138}
    assert {n: interval_rank(n, 0.95) for n in ranks} == ranks


@pytest.mark.parametrize(
    ("baseline", "candidate"),
    [([], []), ([1.0], [1.0, 2.0]), ([0.0], [1.0]), ([math.nan], [1.0])],
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
    excludes_one = not known(paired.ci_low) <= 1 <= known(paired.ci_high)
    assert excludes_one == (paired.p_value < 0.05)


def test_interval_and_p_agree_for_more_rounds_than_the_exact_distribution_has() -> None:
    generator, close = np.random.default_rng(5), 0
    for _ in range(1000):
        candidate = np.exp(generator.normal(generator.uniform(0.0, 0.4), 1.0, generator.integers(61, 121)))
        paired = paired_speedup(np.ones(candidate.size), candidate)
        close += 0.04 < paired.p_value < 0.06
        assert (paired.p_value < 0.05) == (not known(paired.ci_low) <= 1 <= known(paired.ci_high))
    assert close > 10


@settings(deadline=None, max_examples=100)
@given(times)
def test_swapping_the_columns_inverts_everything(pairs: list[tuple[float, float]]) -> None:
    baseline, candidate = zip(*pairs, strict=True)
    forth, back = paired_speedup(baseline, candidate), paired_speedup(candidate, baseline)
    assert forth.speedup == pytest.approx(1 / back.speedup)
    assert known(forth.ci_low) == pytest.approx(1 / known(back.ci_high))
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
