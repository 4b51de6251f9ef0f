"""tau, the variation between processes: found again where it was put, and named where it is assumed."""

import math

import numpy as np
import pytest
from scipy import special

from benchmarks.processes import component, tau_of
from runner.analysis.verdicts.between import ASSUMED, Pool, assumed_tau, kind_of, moderated, pooled

Floats = np.ndarray


def processes(rng: np.random.Generator, tau: float, *, count: int = 10, rounds: int = 20) -> list[Floats]:
    """Heavy-tailed rounds of 3 %, whose first and second variant gains 2 % in turn, as orders do."""
    position = np.tile([0.02, -0.02], rounds // 2)
    return [rng.normal(0, tau) + 0.03 * rng.standard_t(3, rounds) + position for _ in range(count)]


@pytest.mark.parametrize("tau", [0.0025, 0.011, 0.023])
def test_tau_is_found_again(tau: float) -> None:
    rng = np.random.default_rng(3)
    found = [tau_of([component(processes(rng, tau)) for _ in range(10)], draws=300) for _ in range(30)]
    squares = [np.mean([getattr(one, name) ** 2 for one in found]) for name in ("value", "halves")]
    assert math.sqrt(squares[0]) == pytest.approx(tau, abs=0.0015)
    assert math.sqrt(squares[1]) == pytest.approx(tau, abs=0.003)


def test_dependent_rounds_raise_the_analysis_of_variance_but_not_the_halves() -> None:
    rng = np.random.default_rng(5)
    models = []
    for _ in range(60):
        drawn = []
        for _ in range(10):
            noise = rng.normal(0, 0.03, 40)
            for i in range(1, 40):
                noise[i] = 0.7 * noise[i - 1] + 0.7 * noise[i]
            drawn.append(noise)
        models.append(component(drawn))
    found = tau_of(models, draws=300)
    assert found.value > 1.5 * found.halves


def test_too_little_to_tell() -> None:
    with pytest.raises(ValueError, match="two processes"):
        component([np.zeros(20)])
    with pytest.raises(ValueError, match="ten rounds"):
        component([np.zeros(20), np.zeros(9)])
    with pytest.raises(ValueError, match="two models"):
        tau_of([component([np.zeros(20), np.ones(20)])])


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
