"""tau, the variation between processes: which value is assumed, and how models share what they show."""

import math

import numpy as np
import pytest
from scipy import special

from runner.analysis.verdicts.between import ASSUMED, Pool, assumed_tau, kind_of, moderated, pooled


@pytest.mark.parametrize(
    ("candidate", "kind"),
    [
        ("inductor", "inductor"),
        ("inductor_max_autotune", "inductor"),
        ("aot_inductor", "inductor"),
        ("aot_eager", "aot_eager"),
        ("eager", "eager"),
        ("torchscript", "other"),
    ],
)
def test_every_candidate_has_a_kind(candidate: str, kind: str) -> None:
    assert kind_of(candidate) == kind
    for mode in ("inference", "training", "generate"):
        assert assumed_tau(candidate, mode).sd in ASSUMED.values()


def test_eager_of_another_precision_varies_like_a_compiler() -> None:
    one, other = (assumed_tau("eager", "training", control=control).sd for control in (True, False))
    assert one < other


def test_the_moderated_variance_lies_between_the_models_own_and_that_of_all() -> None:
    variance, df = moderated(0.02, 3, Pool(variance=0.01**2, df=4))
    assert variance == pytest.approx((0.02**2 * 2 + 4 * 0.01**2) / 6)
    assert df == 6
    assert pooled([], 0.01**2) == Pool(variance=0.01**2, df=1)
    many = pooled([(0.02, 3)] * 50, 0.01**2)
    assert many.variance == pytest.approx(0.02**2, rel=0.05)
    assert many.df == 4


@pytest.mark.parametrize(("models", "df"), [(1, 1.0), (3, 2.0), (7, 4.0), (20, 4.0)])
def test_the_pool_s_weight_grows_with_what_other_models_measure(models: int, df: float) -> None:
    assert pooled([(0.01, 3)] * models, 0.01**2).df == pytest.approx(df)


@pytest.mark.parametrize("tau", [0.0025, 0.011, 0.023])
@pytest.mark.parametrize("models", [1, 2, 10])
def test_three_processes_cover_the_truth_whatever_was_assumed(tau: float, models: int) -> None:
    """The interval over processes, with an assumption of 1.1 % and rounds that explain 0.6 %."""
    rng = np.random.default_rng(2)
    assumed, held = 0.011**2 + 0.006**2, 0
    runs = 3000 // models
    for _ in range(runs):
        drawn = rng.normal(0, math.hypot(tau, 0.006), (models, 3))
        spreads = drawn.std(axis=1, ddof=1)
        pool = pooled([(spread, 3) for spread in spreads], assumed)
        for center, spread in zip(drawn.mean(axis=1), spreads, strict=True):
            variance, df = moderated(spread, 3, pool)
            held += abs(center) <= special.stdtrit(df, 0.975) * math.sqrt(variance / 3)
    assert held / (runs * models) > 0.91
