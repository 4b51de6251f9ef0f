"""Noise of a record: numbers known beforehand, and findings where they matter."""

import math
import statistics
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from harness.schema import Record, Samples
from runner.analysis.comparison import Comparison
from runner.analysis.derive import compare, summarize
from tests.factories import finding, known, make_job, make_record
from tests.unit.test_doctor import samples


def compared(record: Record) -> Comparison:
    (comparison,) = compare([record])
    return comparison


def made(times: Samples | None, **metrics: Any) -> Record:
    record = make_record(make_job())
    return replace(record, samples=times, metrics=metrics, environment={"cpu_count": 2})


def drifting(n: int = 40) -> Samples:
    """Candidate times that swing slowly against eager's steady ones."""
    return samples([0.01] * n, [0.01 * (1 + 0.1 * math.sin(i / 6)) for i in range(n)])


def noisy(n: int, spread: float) -> Samples:
    rng = np.random.default_rng(7)
    columns = 0.01 * np.exp(rng.normal(0, spread, (2, n)))
    return samples(columns[0].tolist(), columns[1].tolist())


def test_the_numbers_of_known_samples() -> None:
    record = made(
        samples([1.0, 3.0] * 5, [2.0] * 10),
        rounds_wall_s=10.0,
        stolen_cpu_s=1.0,
        involuntary_switches=50,
        throttled_s=2.0,
        gpu_clock_min_mhz=1200,
        gpu_clock_max_mhz=1980,
        gpu_throttle_reasons="power cap",
    )
    noise = known(compared(record).noise)
    assert noise["baseline_cv"] == pytest.approx(math.sqrt(10 / 9) / 2)
    assert noise["candidate_cv"] == 0
    assert noise["lag_1"] == pytest.approx(-0.9)
    assert (noise["baseline_minor_faults"], noise["candidate_minor_faults"]) == (3.0, 4.0)
    assert noise["stolen_share"] == pytest.approx(0.05)  # two CPUs
    assert noise["involuntary_switches_per_s"] == pytest.approx(5)
    assert noise["throttled_share"] == pytest.approx(0.2)
    assert (noise["gpu_clock_min_mhz"], noise["gpu_clock_max_mhz"]) == (1200, 1980)


def test_what_is_not_told_is_none_and_never_0() -> None:
    still = made(samples([0.01] * 8, [0.01] * 8), stolen_cpu_s=None, rounds_wall_s=0.0)
    noise = known(compared(still).noise)
    untold = ("stolen_share", "throttled_share", "involuntary_switches_per_s", "gpu_clock_min_mhz")
    assert {noise[name] for name in (*untold, "lag_1")} == {None}  # lag 1: no variation at all
    for times in (None, samples([0.01], [math.nan]), samples([0.01, 0.02], [0.01])):
        assert compared(made(times)).noise is None


@pytest.mark.parametrize(
    ("times", "metrics", "title"),
    [
        (drifting(), {}, "Rounds that depend on each other"),
        (noisy(40, 0.02), {"stolen_cpu_s": 1.0, "rounds_wall_s": 10.0}, "CPU time stolen"),
        (noisy(40, 0.02), {"throttled_s": 1.0, "rounds_wall_s": 10.0}, "Stopped by a CPU quota"),
        (noisy(40, 0.2), {"involuntary_switches": 5000, "rounds_wall_s": 10.0}, "Other work on the same"),
        (
            noisy(40, 0.02),
            {"gpu_clock_min_mhz": 900, "gpu_clock_max_mhz": 1900, "gpu_throttle_reasons": "power cap"},
            "The GPU lowered its clock",
        ),
        (
            noisy(40, 0.02),
            {"gpu_clock_min_mhz": 1300, "gpu_clock_max_mhz": 1330, "gpu_capped_share": 0.9},
            "The GPU was at its power limit",
        ),
        (noisy(40, 0.02), {"allocator_retries": 3}, "The GPU's memory was short"),
    ],
)
def test_noise_that_matters_is_found(times: Samples, metrics: dict[str, Any], title: str) -> None:
    assert finding([made(times, **metrics)], title)


def test_page_faults_of_one_side_are_found() -> None:
    times = noisy(40, 0.02)
    n = len(times)
    step = statistics.median(times.baseline_s)
    many = 0.1 * step / 0.5e-6  # faults of 0.5 us that take 10 % of a step
    unequal = replace(times, baseline_minor_faults=(many,) * n, candidate_minor_faults=(0.0,) * n)
    equal = replace(unequal, candidate_minor_faults=(many,) * n)
    (found,), none = (
        [warning for warning in summarize([made(sides)]).warnings if "page faults" in warning.title]
        for sides in (unequal, equal)
    )
    assert "10" in found.cases[0]
    assert "--allocator" in found.advice
    assert none == []


def test_a_comparison_has_what_its_steps_achieve() -> None:
    record = made(
        samples([0.02] * 8, [0.01] * 8),
        flops_per_step=2_000_000_000,
        items_per_step=64,
        item="tokens",
        measured_peak_flop_per_s=4e11,
        data_sheet_peak_flop_per_s=1e12,
        baseline_energy_per_step_j=3.0,
        candidate_energy_per_step_j=2.0,
    )
    work = known(compared(record).work)
    expected = {
        "baseline_tflop_per_s": 0.1,
        "candidate_tflop_per_s": 0.2,
        "candidate_share_of_measured": 0.5,
        "baseline_share_of_data_sheet": 0.1,
        "candidate_items_per_s": 6400,
        "energy_ratio": 1.5,
    }
    assert {name: work[name] for name in expected} == pytest.approx(expected)
    cast = replace(record, job=replace(record.job, baseline_dtype="float32", dtype="bfloat16"))
    other = known(compared(cast).work)
    assert other["baseline_share_of_measured"] is None  # that peak is of another precision
    assert other["candidate_share_of_measured"] == pytest.approx(0.5)
    without = known(compared(made(samples([0.02] * 8, [0.01] * 8), flops_per_step=None)).work)
    assert {without[name] for name in ("candidate_tflop_per_s", "item", "energy_ratio")} == {None}
