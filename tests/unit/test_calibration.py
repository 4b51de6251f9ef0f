"""tau of a machine: found again where it was put, kept for the conditions it belongs to, and named."""

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy import special

from harness.schema import Mode, Record, Scalar
from runner.analysis.derive import summarize
from runner.analysis.verdicts.between import ASSUMED, Assumed, assumed_tau
from runner.analysis.verdicts.calibration import calibrated, tau_of
from runner.analysis.verdicts.decision import T_95, Z_95
from runner.cli.actions.measure import MeasureRequest
from runner.errors import UsageError
from runner.plan.jobs import plan
from runner.reports.parts.table import processes_cell
from runner.store.calibrations import Calibration, Tau, keep, matching, read_calibrations
from tests.command_line import parsed
from tests.factories import make_job, make_record, make_samples

MODELS, PROCESSES, WITHIN = 5, 4, 0.005
FACTS: dict[str, Scalar] = {
    "cpu": "a",
    "device_name": "a",
    "torch": "2.13.0",
    "threads": 1,
    "allocator": "default",
}


@pytest.mark.parametrize("tau", [0.002, 0.005, 0.01, 0.02, 0.03])
def test_a_planted_tau_and_the_speedups_that_it_moves_are_held(tau: float) -> None:
    rng = np.random.default_rng(36)
    held, covered, repetitions = 0, 0.0, 400
    for _ in range(repetitions):
        noise = WITHIN**2 * rng.chisquare(19, MODELS) / 19
        sds = rng.normal(0, math.hypot(tau, WITHIN), (MODELS, PROCESSES)).std(axis=1, ddof=1)
        found = tau_of("inductor", "training", [*zip(sds, [PROCESSES] * MODELS, noise, strict=True)])
        held += found.low <= tau <= found.high
        # of one later process, whose log speedup varies by tau and by its rounds
        half = math.hypot(Z_95 * WITHIN, T_95 * found.sd)
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
        half = math.hypot(Z_95 * WITHIN, T_95 * tau_of("inductor", "inference", spreads).sd)
        covered += float(np.mean(1 - 2 * special.ndtr(-half / np.hypot(of_models, WITHIN))))
    assert covered / repetitions > 0.935


def in_processes(
    rng: np.random.Generator, tau: float, candidate: str, mode: Mode, noise: float = 0.01
) -> Record:
    centers = np.repeat(rng.normal(0, tau, PROCESSES), 20)
    times = tuple(np.exp(-centers + rng.normal(0, noise, centers.size)))
    samples = replace(
        make_samples(rounds=len(times)),
        baseline_s=(1.0,) * len(times),
        candidate_s=times,
        rounds_by_process=(20,) * PROCESSES,
    )
    record = make_record(make_job(mode=mode), candidate=candidate)
    return replace(record, samples=samples, environment=FACTS, ended="2026-11-20T10:00:00+00:00")


def test_records_of_several_processes_calibrate_each_candidate_and_mode() -> None:
    rng = np.random.default_rng(3)
    records = [in_processes(rng, 0.02, "inductor", Mode.TRAINING) for _ in range(MODELS)]
    records += [in_processes(rng, 0.0, "eager", Mode.INFERENCE) for _ in range(MODELS)]
    (found,) = calibrated(records)
    control, compiler = found.taus
    assert (control.kind, control.mode, control.models, control.processes) == ("eager", "inference", 5, 20)
    assert control.low == 0 <= control.sd < 0.004
    assert compiler.low < 0.02 < compiler.sd
    assert found.date == "2026-11-20"
    assert matching([found], FACTS) is found
    assert matching([found], {**FACTS, "threads": 2}) is None
    assert calibrated([make_record(make_job())]) == ()  # one process shows nothing
    assert calibrated([in_processes(rng, 0.02, "inductor", Mode.TRAINING, noise=0.2)]) == ()


def request(*words: str) -> MeasureRequest:
    _, measure = parsed(words)
    assert isinstance(measure, MeasureRequest)
    return measure


def row(kind: str, sd: float) -> Tau:
    return Tau(kind=kind, mode="training", sd=sd, low=0, high=1, models=5, processes=20)


CALIBRATION = Calibration(
    date="2026-11-20", conditions={"machine": "m"}, taus=(row("eager", 0.0), row("inductor", 0.01))
)


def test_a_kind_without_a_value_has_that_of_the_compilers_or_of_the_program() -> None:
    assert assumed_tau("eager", "training", calibration=CALIBRATION) == Assumed(0.0, "2026-11-20")
    assert assumed_tau("torchscript", "training", calibration=CALIBRATION).sd == 0.01
    assert assumed_tau("inductor", "generate", calibration=CALIBRATION) == Assumed(
        ASSUMED["inductor", "inference"]
    )


def test_the_file_has_one_calibration_of_each_condition(tmp_path: Path) -> None:
    path = tmp_path / "new" / "calibrations.json"
    assert read_calibrations(path) == ()
    other, newer = replace(CALIBRATION, conditions={"machine": "o"}), replace(CALIBRATION, date="2026-11-23")
    keep("--calibrate", [CALIBRATION, other], path)
    keep("--calibrate", [newer], path)
    assert read_calibrations(path) == (other, newer)
    path.write_text('{"half": ')
    with pytest.raises(UsageError, match="no file of --calibrate; remove it"):
        read_calibrations(path)


def test_tables_and_caveats_name_the_calibration_and_its_age() -> None:
    record = replace(make_record(make_job()), calibrated="2026-11-20", started="2026-11-23T10:00:00+00:00")
    summary = summarize([record])
    assert "calibrated on 2026-11-20, 3 days before, (training: inductor 0.6 %;" in summary.caveats[-1]
    assert processes_cell(summary.comparisons[0]) == "0.6 % calibrated 2026-11-20"


@pytest.mark.parametrize(
    ("date", "device", "said"), [("", "cuda", 1), ("", "cpu", 0), ("2026-11-20", "cuda", 0)]
)
def test_verdicts_that_borrow_from_a_cpu_say_so(date: str, device: str, said: int) -> None:
    record = replace(make_record(replace(make_job(), device=device)), calibrated=date)
    assert sum("measured on a CPU" in caveat for caveat in summarize([record]).caveats) == said


def test_a_calibration_is_a_plan_of_small_models_that_flags_change() -> None:
    jobs = plan(request("--calibrate", "--devices=cpu").config)
    assert len(jobs) == 10  # five models in two modes
    assert {job.candidates for job in jobs} == {("eager", "aot_eager", "inductor")}
    assert {(job.protocol.processes, job.protocol.repeat, job.protocol.accuracy) for job in jobs} == {
        (4, 20, False)
    }
    assert len(plan(request("--calibrate", "--only=lcnet_050", "--inference", "-dcpu").config)) == 1
    own = request("--calibrate", "--suites=tiny_gpt", "--training", "--inductor", "--processes=6").config
    assert (own.suites, own.selection.only, own.modes) == (("tiny_gpt",), (), (Mode.TRAINING,))
    assert (own.compilers, own.protocol.processes) == (("inductor",), 6)
