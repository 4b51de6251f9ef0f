"""What only a GPU can show: results/gpu-h100 has what it showed. On the CPU the same lines run."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any, cast

import pytest
import torch
from torch import nn

import torchduet
from harness import devices
from harness.codec import to_json
from harness.precision import settle
from harness.schema import Protocol, Status
from harness.worker.session import Session
from harness.workload import Workload
from runner.engine.worker_process import WorkerProcess
from runner.engine.worker_start import ForkedStart, HostPool, forking_works
from runner.plan.interpreter import worker_environment
from tests.factories import make_job
from tests.worker.planted import silent

FAULTS = str(Path(__file__).with_name("faults.py"))
QUICK = Protocol(repeat=10, min_sample_s=0.0)
STEP_S = 0.020


# -- times ------------------------------------------------------------------------------------
class Sleeping(nn.Module):
    """A step of a known time: a kernel that waits, or the host that sleeps."""

    def __init__(self, cycles: int) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 8)
        self.cycles = cycles

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if x.device.type == "cpu":
            time.sleep(STEP_S)
        else:
            torch.cuda._sleep(self.cycles)  # type: ignore[no-untyped-call]
        output: torch.Tensor = self.linear(x)
        return output


def cycles_of(seconds: float, device: devices.Device) -> int:
    """The argument of ``torch.cuda._sleep`` for so many seconds, measured by events of the device."""
    if not device.accelerated:
        return 0
    trial, events = 50_000_000, cast("Any", torch.cuda)
    for _ in range(20):  # the first raise the clock
        begin, end = (events.Event(enable_timing=True) for _ in range(2))
        begin.record()
        events._sleep(trial)
        end.record()
        end.synchronize()
    return int(trial * seconds * 1e3 / begin.elapsed_time(end))


def test_a_step_of_a_known_time_is_timed_right(device: devices.Device) -> None:
    """By first calls, rounds and the lap of a generation alike."""
    cycles = cycles_of(STEP_S, device)
    work = Workload(module=Sleeping(cycles), args=(torch.ones(4, 8),), loss=lambda out, _: out.mean())
    protocol = Protocol(repeat=10, min_sample_s=0.0, accuracy=False)
    job = make_job(device=str(device), candidates=("eager",), protocol=protocol)
    ready = Session(job, silent, lambda _: work)
    ready.open()
    ready.prepare("eager")
    ready.warm_up()
    rounds, _ = ready.measure(5)
    times = [seconds for timed_round in rounds for seconds in timed_round.seconds.values()]
    times += ready.first_calls_s["eager"][1:]
    assert min(times) >= 0.95 * STEP_S
    if device.accelerated:  # a sleeping host wakes late where other work runs
        assert sorted(times)[len(times) // 2] <= 1.1 * STEP_S


# -- failures ---------------------------------------------------------------------------------
def test_who_breaks_the_device_leaves_the_others_their_numbers(device: devices.Device) -> None:
    compilers = ["eager", f"{FAULTS}:breaks", "aot_eager"]
    how: dict[str, Any] = {"compilers": compilers, "mode": "training", "protocol": QUICK}
    records = torchduet.compare(f"{FAULTS}:model", device=str(device), **how).records
    by_name = {record.candidate: record for record in records}
    assert by_name["faults.breaks"].status is (Status.FAIL_TO_RUN if device.accelerated else Status.CRASH)
    for name in ("eager", "aot_eager"):
        assert by_name[name].status is Status.PASS
        assert by_name[name].samples is not None
    assert any("fresh worker after" in note or "alone" in note for note in by_name["aot_eager"].notes)


@pytest.mark.skipif(not forking_works(), reason="this system cannot fork and watch workers")
@pytest.mark.parametrize("suite", ["tiny_gpt", "huggingface", "timm_models"])
def test_a_forked_worker_opens_the_device(device: devices.Device, suite: str, tmp_path: Path) -> None:
    if suite != "tiny_gpt" and not device.accelerated:
        pytest.skip("a CPU needs no driver that a model library could use: one suite stands in")
    suite_of_it = f"{FAULTS}:model"
    wanted = make_job(suite=suite_of_it, device=str(device), candidates=("eager",), protocol=QUICK)
    with HostPool() as pool:
        start = ForkedStart(pool=pool, suite=suite, device=str(device))
        log = tmp_path / "output.log"
        with WorkerProcess(start, worker_environment(threads=1), log, lambda _: None) as worker:
            reply = worker.call({"call": "open", "job": to_json(wanted)}, time.monotonic() + 300)
    assert reply["ok"]["environment"]["worker"] == "forked", reply["ok"]["model"]["remarks"]


# -- settings ---------------------------------------------------------------------------------
@pytest.mark.usefixtures("_real_gpu")
def test_tf32_is_off_on_and_put_back_where_a_model_sets_it(place: torch.device) -> None:
    left, right = torch.randn(2, 512, 512, device=place)
    exact = left.double() @ right.double()

    def error() -> float:
        return float(((left @ right).double() - exact).abs().max() / exact.abs().max())

    settle(place)
    off = error()
    settle(place, tf32=True)
    on = error()
    settle(place)
    torch.backends.cuda.matmul.fp32_precision = "tf32"
    assert settle(place)
    assert error() == off
    if torch.cuda.get_device_capability(place) >= (8, 0):
        assert on > 10 * off


def test_two_environments_agree(device: devices.Device, tmp_path: Path) -> None:
    """One torch under two settings: results travel between the workers and are compared on the device."""
    from tests.cli.command import TOYS, records, run_into
    from tests.cli.test_environments import wrapper

    other = wrapper(tmp_path / "python", "TORCHDUET_EXAMPLE=1")
    words = ["--training", f"--suites={TOYS}", "--only=linear", "--compilers=eager", "-n", "6", f"-d{device}"]
    place = tmp_path / "run"
    run_into(place, *words, f"--envs=a={sys.executable}", f"--envs=b={other}")
    for record in records(place):
        assert record["status"] == "pass", record["failure"]
