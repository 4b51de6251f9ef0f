"""The doctor, on machines that are folders of files."""

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from harness.schema import Job, Record, Samples, Status
from runner.cli.actions import doctor
from runner.cli.actions.doctor import facts, noise_lines
from runner.errors import UsageError
from tests.factories import comparison_of, make_job, make_record, make_samples

PAGES = "sys/kernel/mm/transparent_hugepage/enabled"
GOVERNOR = "sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"
MEMORY = "MemTotal: 8388608 kB\nMemAvailable: 524288 kB\n"


def examined(root: Path, files: dict[str, str], **environment: str) -> dict[str, tuple[str, str]]:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return {name: (state, advice) for name, state, advice in facts(root, environment, 4)}


def test_a_machine_that_tells_nothing_gets_no_advice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "NVIDIA", ("no such program",))
    assert examined(tmp_path, {"sys/fs/cgroup/cpu.max": "max 100000"}) == {"threads": ("torch's choice", "")}


@pytest.mark.parametrize(
    ("file", "text", "name", "state", "advice"),
    [
        ("proc/loadavg", "3.00 1 1 1/9 7", "load", "3.00 in the last minute, 4 usable CPUs", "end them"),
        ("proc/loadavg", "0.30 1 1 1/9 7", "load", "0.30 in the last minute, 4 usable CPUs", ""),
        ("sys/fs/cgroup/cpu.max", "150000 100000", "CPU quota", "1.5 CPUs", "--threads=1"),
        ("sys/fs/cgroup/cpu.max", "800000 100000", "CPU quota", "8 CPUs", ""),
        (PAGES, "[always] madvise never", "transparent huge pages", "always", "madvise"),
        (PAGES, "always [madvise] never", "transparent huge pages", "madvise", ""),
        ("proc/meminfo", MEMORY, "memory", "0.5 of 8.0 GiB available", "--max-memory"),
        (GOVERNOR, "powersave\n", "CPU governor", "powersave", "cpupower"),
        (GOVERNOR, "performance\n", "CPU governor", "performance", ""),
    ],
)
def test_what_a_file_says(tmp_path: Path, file: str, text: str, name: str, state: str, advice: str) -> None:
    shown, says = examined(tmp_path, {file: text})[name]
    assert shown == state
    assert (advice in says) if advice else not says


def test_threads_and_users_of_the_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    answers = iter((["NVIDIA X, 97 %, Disabled"], ["77, python, 900 MiB"]))
    monkeypatch.setattr(doctor, "_output", lambda *_: next(answers))
    told = examined(tmp_path, {}, OMP_NUM_THREADS="8")
    assert "--threads=4" in told["threads"][1]
    assert "-pm 1" in told["GPU"][1]
    assert told["another GPU user"][0] == "77, python, 900 MiB"


def samples(baseline: Sequence[float], candidate: Sequence[float]) -> Samples:
    return replace(
        make_samples(rounds=len(baseline)),
        baseline_s=tuple(baseline),
        candidate_s=tuple(candidate),
        baseline_minor_faults=(3.0,) * len(baseline),
        candidate_minor_faults=(4.0,) * len(baseline),
    )


def test_what_the_rounds_say() -> None:
    steady = [0.010, 0.0101] * 10
    disturbed = {"rounds_wall_s": 2.0, "stolen_cpu_s": 0.4, "involuntary_switches": 30}
    measured = record_with(samples(steady, steady[::-1]), **disturbed)
    told = replace(measured, environment={"cpu_count": 4, "python": "3.11", "torch": "2.13.0", "threads": 4})
    text = "\n".join(noise_lines(told))
    assert "python 3.11, torch 2.13.0, threads 4" in text
    assert "20 rounds; a step of 10.1 ms varies by 0.51 %" in text
    assert "5 % of the CPU time" in text  # 0.4 s of 2 s on 4 CPUs
    assert "lost the CPU to other work: 15.0/s" in text
    assert "about 6 rounds" in text
    few = record_with(samples([0.01] * 3, [0.01] * 3))
    assert "too few rounds" in "\n".join(noise_lines(few))
    lost = replace(make_record(make_job(), status=Status.CRASH), environment={})
    assert [*noise_lines(lost)] == ["could not be measured: made up | for crash"]


def test_one_device_may_be_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("runner.plan.probe.missing_devices", lambda _: {})
    assert doctor.parse({}) is None
    assert doctor.parse({"devices": ["cuda:1"]}) == "cuda:1"
    with pytest.raises(UsageError, match=r"there is no device called 'cpu,cuda'.*examines one device"):
        doctor.parse({"devices": ["cpu,cuda"]})


@pytest.mark.parametrize(
    ("likely", "missing", "expected"),
    [("cpu", {}, "cpu"), ("cuda", {}, "cuda"), ("cuda", {"cuda": "torch finds no CUDA device"}, "cpu")],
)
def test_the_device_of_a_run_is_measured(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    likely: str,
    missing: dict[str, str],
    expected: str,
) -> None:
    measured: list[str] = []

    def measure(job: Job, *_: object, **__: object) -> list[Job]:
        measured.append(job.device)
        return [job]

    monkeypatch.setattr("harness.devices.likely", lambda: likely)
    monkeypatch.setattr("runner.plan.probe.missing_devices", lambda devices: missing)
    monkeypatch.setattr("runner.engine.launch.measure_job", measure)
    doctor.measured()
    assert measured == [expected]
    said = capsys.readouterr().out
    assert said.count("This machine seems to have a GPU, but torch finds no CUDA device") == bool(missing)


# -- noise of a record -------------------------------------------------------------------------
def record_with(times: Samples | None, **metrics: Any) -> Record:
    record = make_record(make_job())
    return replace(record, samples=times, metrics=metrics, environment={"cpu_count": 2})


def noisy(n: int, spread: float) -> Samples:
    rng = np.random.default_rng(7)
    columns = 0.01 * np.exp(rng.normal(0, spread, (2, n)))
    return samples(columns[0].tolist(), columns[1].tolist())


def test_what_is_not_told_is_none_and_never_0() -> None:
    still = record_with(samples([0.01] * 8, [0.01] * 8), stolen_cpu_s=None, rounds_wall_s=0.0)
    untold = ("stolen_share", "throttled_share", "involuntary_switches_per_s", "gpu_clock_min_mhz")
    assert {comparison_of(still).value(name) for name in (*untold, "lag_1")} == {
        None
    }  # lag 1: no variation at all
    for times in (None, samples([0.01], [math.nan]), samples([0.01, 0.02], [0.01])):
        assert not comparison_of(record_with(times)).n


def test_a_peak_is_of_its_precision_and_energy_has_a_ratio() -> None:
    numbers = {"flops_per_step": 2_000_000_000, "measured_peak_flop_per_s": 4e11}
    energy = {"baseline_energy_per_step_j": 3.0, "candidate_energy_per_step_j": 2.0}
    record = record_with(samples([0.02] * 8, [0.01] * 8), **numbers, **energy)
    cast = replace(record, job=replace(record.job, baseline_dtype="float32", dtype="bfloat16"))
    for measured, baseline in ((record, 0.25), (cast, None)):
        names = ("baseline_share_of_measured", "candidate_share_of_measured", "energy_ratio")
        assert tuple(map(comparison_of(measured).value, names)) == (baseline, 0.5, 1.5)
    without = comparison_of(record_with(samples([0.02] * 8, [0.01] * 8), flops_per_step=None))
    assert {without.value(name) for name in ("candidate_tflop_per_s", "item", "energy_ratio")} == {None}
