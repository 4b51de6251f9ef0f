"""tau, the variation between processes: which value is assumed, and how models share what they show."""

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from scipy import special

from harness.schema import AS_FOUND, Compilation, Scalar
from runner.analysis.verdicts.between import ASSUMED, Pool, assumed_tau, kind_of, moderated, pooled
from runner.analysis.verdicts.choices import followed
from tests.factories import make_job, make_record, make_samples


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


@pytest.mark.parametrize(
    ("name", "values", "said"),
    [
        (
            "generated_code",
            "aabab",
            "] in 3 processes, 1.0501x [1.0494, 1.0507] in 2 with other generated code",
        ),
        ("autotuned_kernels", "aabab", "in 2 with other kernels, which autotuning chose"),
        ("generated_code", "aaaab", ""),  # one process shows no spread
        ("generated_code", "aaaaa", ""),
        ("huge_pages_bytes", (5, 9, 0, 7, 0), "in 2 with huge pages or without"),
        ("compile_cpu_s", "aabab", ""),
    ],
)
def test_a_choice_that_the_speedup_follows_is_named(name: str, values: Sequence[Scalar], said: str) -> None:
    logs = np.log([1.2, 1.2, 1.05, 1.2, 1.05]) + np.array([0, 1e-4, 0, -1e-4, 1e-4])
    samples = replace(
        make_samples(rounds=40),
        baseline_s=tuple(np.repeat(np.exp(logs), 8)),
        candidate_s=(1.0,) * 40,
        rounds_by_process=(8,) * 5,
    )
    first, *later = ({name: value} for value in values)
    record = replace(
        make_record(make_job()),
        samples=samples,
        metrics=first,
        compilations=tuple(Compilation(start=AS_FOUND, round=n, metrics=one) for n, one in enumerate(later)),
    )
    assert said in followed(record)
    assert bool(said) is bool(followed(record))
