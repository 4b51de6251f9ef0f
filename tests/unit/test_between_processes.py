"""tau, the variation between processes: which value is assumed, and how models share what they show."""

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy import special

from benchmarks.tau import calibrated, tau_of
from harness.protocol import Protocol
from harness.schema import Mode, Record, Scalar
from runner.analysis.derive import summarize
from runner.analysis.ratios import estimates_of
from runner.analysis.texts import processes_cell
from runner.analysis.verdicts.between import (
    ASSUMED,
    SHORT_STEP_TAU,
    assumed_in,
    assumed_tau,
    kind_of,
    moderated,
    pooled,
)
from runner.analysis.verdicts.decision import T_95, Z_95
from tests.factories import known, make_job, make_record, sampled, with_samples


@pytest.mark.parametrize(
    ("candidate", "kind"),
    [
        *(("inductor", "inductor"), ("inductor_max_autotune", "inductor"), ("aot_inductor", "inductor")),
        *(("aot_eager", "aot_eager"), ("eager", "eager"), ("torchscript", "other")),
    ],
)
def test_every_candidate_has_a_kind(candidate: str, kind: str) -> None:
    assert kind_of(candidate) == kind
    for mode in ("inference", "training", "generate"):
        assert assumed_tau(candidate, mode) in ASSUMED.values()


@pytest.mark.parametrize(
    ("seconds", "device", "short"),
    [((), "cpu", False), ((0.01, 0.01, 0.5), "cpu", True), ((0.06,), "cpu", False), ((0.01,), "cuda", False)],
)
def test_a_compiler_varies_more_in_short_steps(seconds: tuple[float, ...], device: str, short: bool) -> None:
    job = replace(make_job(), device=device)
    assert (assumed_in(job, "inductor", seconds) == SHORT_STEP_TAU) is short
    assert assumed_in(job, "eager", seconds) == ASSUMED["eager", "training"]


@pytest.mark.parametrize(("threads", "inductor"), [(1, 0.006), (2, 0.015), (None, 0.015)])
def test_a_compiler_varies_more_in_training_on_several_threads(threads: int | None, inductor: float) -> None:
    job = make_job(protocol=Protocol(threads=threads))
    assert assumed_in(job, "inductor", (0.1,)) == inductor
    assert assumed_in(job, "eager", (0.1,)) == ASSUMED["eager", "training"]
    of_inference = replace(job, case=replace(job.case, mode=Mode.INFERENCE))
    assert assumed_in(of_inference, "inductor", (0.1,)) == ASSUMED["inductor", "inference"]


def test_eager_of_another_precision_varies_like_a_compiler() -> None:
    of_control, other = (assumed_tau("eager", "training", control=control) for control in (True, False))
    assert of_control < other


@pytest.mark.parametrize(("models", "df"), [(1, 1.0), (3, 2.0), (7, 4.0), (20, 4.0)])
def test_the_pool_s_weight_grows_with_what_other_models_measure(models: int, df: float) -> None:
    assert pooled([(0.01, 3)] * models, 0.01**2).df == pytest.approx(df)


@pytest.mark.parametrize(("tau", "models"), sampled(2, (0.0025, 0.011, 0.023), (1, 2, 10)))
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


def test_equal_devices_share_the_variance_between_their_processes() -> None:
    """Of records on two cards of one model, as of records on one card."""
    rng = np.random.default_rng(5)
    records = [in_processes(rng, 0.02, "inductor", Mode.TRAINING) for _ in range(MODELS)]
    facts = {**FACTS, "device_name": "NVIDIA L4"}
    intervals = []
    for cards in (1, 2):
        devices = [f"cuda:{place % cards}" for place in range(MODELS)]
        placed = [
            replace(r, job=replace(r.job, device=device), environment=facts)
            for r, device in zip(records, devices, strict=True)
        ]
        intervals.append([known(estimate).interval for estimate in estimates_of(placed)])
    assert intervals[0] == intervals[1]


def test_models_with_page_faults_do_not_widen_the_intervals_of_others() -> None:
    rng = np.random.default_rng(6)
    quiet, varying = (
        [in_processes(rng, tau, "inductor", Mode.INFERENCE) for _ in range(MODELS)] for tau in (0.002, 0.08)
    )

    alone = [known(estimate).interval for estimate in estimates_of(quiet)]
    for faults in (500.0, 0.0):
        column = (faults,) * 20 * PROCESSES
        both = estimates_of([*quiet, *(with_samples(r, baseline_minor_faults=column) for r in varying)])
        assert ([known(estimate).interval for estimate in both[:MODELS]] == alone) is (faults > 0)


# -- tau of a machine --------------------------------------------------------------------------
MODELS, PROCESSES, WITHIN = 5, 4, 0.005
FACTS: dict[str, Scalar] = {
    "cpu": "a",
    "device_name": "a",
    "torch": "2.13.0",
    "threads": 1,
    "allocator": "default",
}


@pytest.mark.parametrize("tau", sampled(2, (0.002, 0.005, 0.01, 0.02, 0.03)))
def test_a_planted_tau_and_the_speedups_that_it_moves_are_held(tau: float) -> None:
    rng = np.random.default_rng(36)
    held, covered, repetitions = 0, 0.0, 400
    for _ in range(repetitions):
        noise = WITHIN**2 * rng.chisquare(19, MODELS) / 19
        sds = rng.normal(0, math.hypot(tau, WITHIN), (MODELS, PROCESSES)).std(axis=1, ddof=1)
        estimate = tau_of([*zip(sds, [PROCESSES] * MODELS, noise, strict=True)])
        held += estimate.low <= tau <= estimate.high
        # of one later process, whose log speedup varies by tau and by its rounds
        half = math.hypot(Z_95 * WITHIN, T_95 * estimate.sd)
        covered += 1 - 2 * float(special.ndtr(-half / math.hypot(tau, WITHIN)))
    assert 0.9 <= held / repetitions <= 0.98
    assert 0.95 <= covered / repetitions <= 0.985


def test_models_that_differ_are_held_on_average() -> None:
    """As in inference in results/processes-cpu, where tau of a model is 0 to 2.6 %."""
    rng, covered, repetitions = np.random.default_rng(36), 0.0, 400
    of_models = np.array((0.0, 0.004, 0.005, 0.006, 0.009, 0.011, 0.013, 0.016, 0.018, 0.026))
    for _ in range(repetitions):
        taus = rng.choice(of_models, MODELS)
        deviations = rng.normal(0, 1, (MODELS, PROCESSES)) * np.hypot(taus, WITHIN)[:, None]
        spreads = [(float(row.std(ddof=1)), PROCESSES, WITHIN**2) for row in deviations]
        half = math.hypot(Z_95 * WITHIN, T_95 * tau_of(spreads).sd)
        covered += float(np.mean(1 - 2 * special.ndtr(-half / np.hypot(of_models, WITHIN))))
    assert covered / repetitions > 0.935


def in_processes(
    rng: np.random.Generator,
    tau: float,
    candidate: str,
    mode: Mode,
    *,
    noise: float = 0.01,
    step_s: float = 1.0,
) -> Record:
    centers = np.repeat(rng.normal(0, tau, PROCESSES), 20)
    times = tuple(step_s * np.exp(-centers + rng.normal(0, noise, centers.size)))
    record = with_samples(
        make_record(make_job(mode=mode), candidate=candidate, rounds=len(times)),
        baseline_s=(step_s,) * len(times),
        candidate_s=times,
        rounds_by_process=(20,) * PROCESSES,
    )
    return replace(record, environment=FACTS, ended="2026-11-20T10:00:00+00:00")


def test_records_of_several_processes_calibrate_each_candidate_mode_and_step() -> None:
    rng = np.random.default_rng(3)
    records = [in_processes(rng, 0.02, "inductor", Mode.TRAINING) for _ in range(MODELS)]
    records += [in_processes(rng, 0.0, "eager", Mode.INFERENCE) for _ in range(MODELS)]
    records += [in_processes(rng, 0.01, "inductor", Mode.TRAINING, step_s=0.01) for _ in range(MODELS)]
    (calibration,) = calibrated(records)
    control, compiler, in_short_steps = calibration.taus.values()
    kinds = [("inference", False, "eager"), ("training", False, "inductor"), ("training", True, "inductor")]
    assert [*calibration.taus] == kinds
    assert (control.models, control.processes) == (5, 20)
    assert in_short_steps.low < 0.01 < in_short_steps.high < compiler.high
    assert control.low == 0 <= control.sd < 0.004
    assert compiler.low < 0.02 < compiler.sd
    assert calibration.date == "2026-11-20"
    assert calibrated([make_record(make_job())]) == ()  # one process shows nothing
    cards = [replace(r, job=replace(r.job, device=f"cuda:{n % 2}")) for n, r in enumerate(records)]
    assert len(calibrated(cards)) == 1  # conditions are equal
    threads = [replace(r, environment={**FACTS, "threads": 1 + n % 2}) for n, r in enumerate(records)]
    assert [part.conditions["threads"] for part in calibrated(threads)] == [1, 2]
    assert calibrated([in_processes(rng, 0.02, "inductor", Mode.TRAINING, noise=0.2)]) == ()


def test_tables_and_caveats_name_the_calibration_and_its_age() -> None:
    record = replace(make_record(make_job()), calibrated="2026-11-20", started="2026-11-23T10:00:00+00:00")
    summary = summarize([record])
    assert "calibrated on 2026-11-20, 3 days before, (training: inductor 0.6 %;" in summary.caveats[-1]
    assert processes_cell(summary.comparisons[0]) == "0.6 % calibrated 2026-11-20"
    short = replace(record, assumed_between_sd=SHORT_STEP_TAU)
    assert "(training: inductor 0.6 % or 2.3 %;" in summarize([record, short]).caveats[-1]
