"""A whole session on a fake accelerator: every number is exact, and no wait may be left out."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from statistics import median
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch._dynamo.utils import counters

from harness.backends.shared import inductor
from harness.devices import of
from harness.failures import JobFailed
from harness.metrics import Ended, call, gpu_clock, observing, peak_rates, trace
from harness.metrics.energy import per_step_j
from harness.precision import precision
from harness.program import Compiled, Program
from harness.schema import BASELINE, Mode, Status
from harness.timing.measure import STREAM, stream_of
from harness.timing.workbench import Workbench
from harness.worker import session as sessions
from harness.worker.session import Session
from tests.accelerator import (
    WATTS,
    Accelerator,
    Block,
    Kernels,
    Place,
    about,
    before_each_step,
    built,
    job,
    opened,
    prepared,
    replaying,
    times,
    waiting_places,
)
from tests.factories import Patch, sampled
from tests.worker.planted import CPU, failed, silent

LONG = stream_of(0.030)  # steps of a sample of eager's

if TYPE_CHECKING:
    from typing_extensions import Self  # typing's own from Python 3.11


# -- what each wait is for ------------------------------------------------------------------
def of_a_session(machine: Accelerator) -> None:
    """First calls, warm-up, rounds, memory of a step."""
    compilers = {"fast": times(machine, 0.5, compile_s=1.0), "replayed": replaying(machine)}
    ready = opened(machine, compilers)
    for name in compilers:
        assert ready.prepare(name)[0] is Status.PASS
    assert ready.first_calls_s["fast"] == [about(1.015), about(0.015), about(0.015)]
    assert ready.compilation_latency_s("fast") == about(1.045 - 3 * 0.030)
    ready.warm_up()
    rounds, recompiled = ready.measure(3)
    assert recompiled == {}
    for timed_round in rounds:
        assert timed_round.seconds == {BASELINE: about(0.030), "fast": about(0.015), "replayed": about(0.030)}
    changed, numbers, failed = ready.finish()
    assert (changed, failed) == ({}, {})
    kept: Any = numbers[BASELINE]["persistent_bytes"]
    peaks = {name: metrics["peak_memory_bytes"] for name, metrics in numbers.items()}
    # a forward keeps its activations until the backward, which needs as many
    assert peaks == {BASELINE: kept + 2000, "fast": kept + 2000, "replayed": kept + 5000}


class Drive:
    """Prefill and one call more."""

    def __call__(
        self, call: Any, module: Any, args: tuple[Any, ...], lap: Callable[[], None], forced: Any
    ) -> Mapping[str, torch.Tensor]:
        first = call(*args)
        lap()
        module.machine.submit(0.100)
        return {"tokens": torch.ones(1, 2, dtype=torch.int64), "logits": first.clone()}


def of_a_generation(machine: Accelerator) -> None:
    """Prefill and decode."""
    work = replace(built(machine), loss=None, drive=Drive())
    case = replace(job().case, mode=Mode.GENERATE, new_tokens=2)
    whole = replace(job("fast"), case=case)
    ready = Session(whole, silent, lambda _: work, {"fast": times(machine, 0.5)})
    ready.open()
    assert ready.prepare("fast")[0] is Status.PASS
    ready.warm_up()
    (timed_round,), _ = ready.measure(1)
    assert timed_round.prefill_s == {BASELINE: about(0.010), "fast": about(0.005)}
    assert timed_round.seconds == {BASELINE: about(0.110), "fast": about(0.105)}


def of_a_single_step(machine: Accelerator) -> None:
    """Bandwidth, rate of products, energy, kernels, health: with their own clocks."""
    waits = of(CPU).synchronize
    machine.submit(7.0)
    with Kernels(machine, {"copy_": lambda args: args[0].numel() / 1e3}):
        assert peak_rates.bandwidth(500, CPU, waits, machine.clock) == about(2000)
    with Kernels(machine, {"mm": lambda args: args[0].numel() / 1e3}):
        rate, size = peak_rates.measured(precision("float32", "cpu"), CPU, waits, machine.clock)
    assert (size, rate) == (8, about(2 * 8**3 / 0.064))
    machine.submit(7.0)

    def step() -> None:
        machine.now += 0.01
        machine.submit(0.25)

    assert per_step_j(step, machine.energy_j, waits, machine.clock) == about(0.25 * WATTS)
    earlier = [Block(machine, 300), Block(machine, 200)]
    earlier.pop()
    with observing("step", CPU) as numbers:
        Block(machine, 700)
    assert numbers["step_peak_bytes"] == 700
    earlier.clear()
    assert of(CPU).healthy()
    machine.fail()
    assert not of(CPU).healthy()
    machine.error = ""


@dataclass
class Profile:
    """In place of torch's profiler: it sees the work that was finished inside."""

    machine: Accelerator

    def __enter__(self) -> Self:
        self.before = self.machine.worked_s
        return self

    def __exit__(self, *_: object) -> None:
        self.seen = self.machine.worked_s - self.before

    def export_chrome_trace(self, path: str) -> None: ...

    def key_averages(self) -> list[Any]:
        times = {"self_device_time_total": self.seen * 1e6, "device_type": "DeviceType.CPU"}
        return [SimpleNamespace(key="kernel", **times)]


def of_a_trace(machine: Accelerator) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("torch.profiler.profile", lambda **_: Profile(machine))
        bench = Workbench(job(), CPU, built(machine))
        ended = Ended(job=job(), device=CPU, variants={}, synchronize=of(CPU).synchronize)
        assert trace.traced("x", bench.variant(), ended)[0] == {"kernel": about(30.0)}
        machine.submit(7.0)
        assert call._halves(bench.variant(), ended) == (about(0.010), about(0.020))


def of_a_step_that_waits_for_it(machine: Accelerator) -> None:
    """In a loop, the host submits the next step while the device works; a single step between waits cannot.

    Eager: 5 ms of the host, 6.25 of the device. The candidate: 0.75 and 5.5. Alone, eager would take 10.
    """

    def compile_it(program: Program) -> Compiled:
        model: Any = program.module
        model.forward_s, model.backward_s, model.host_s = 0.001, 0.0045, (0.0005, 0.00025)
        return Compiled(forward=program.forward(), region="forward+loss", compiler_calls=lambda: 1)

    work = built(machine, forward_s=0.00125, backward_s=0.005, host_s=(0.003, 0.002))
    ready = prepared(machine, {"fast": compile_it}, work)
    assert ready.warm_up()["iterations_per_sample"] == STREAM
    (timed_round,), _ = ready.measure(1)
    assert timed_round.seconds == {
        BASELINE: pytest.approx(0.00625, rel=0.05),
        "fast": pytest.approx(0.0055, rel=0.02),
    }
    ready.finish()
    metrics = ready.conclude()
    devices = {name: metrics.get(name, {}).get("device_s") for name in timed_round.seconds}
    assert devices == {BASELINE: about(0.00625), "fast": about(0.0055)}


SCENARIOS = (of_a_single_step, of_a_session, of_a_generation, of_a_trace, of_a_step_that_waits_for_it)
NO_NEED = {
    ("harness/metrics/peak_rates.py", "fastest_s", 1): "before the first call; the fastest counts",
    ("harness/metrics/trace.py", "traced", 1): "before the first profile; the fastest counts",
    ("harness/metrics/peak_rates.py", "measured", 1): "the next wait would begin the budget as well",
    ("harness/timing/first_calls.py", "timed", 1): "the metrics of compilation have waited",
    ("harness/metrics/call.py", "sample", 1): "the numbers are differences of such samples",
    ("harness/metrics/call.py", "sample", 2): "the numbers are differences of such samples",
    ("harness/timing/warm_up.py", "turn", 1): "the host must not run far ahead; the warm-up waits again",
    ("harness/timing/rounds.py", "lead_in", 1): "the sample that follows waits before it reads the clock",
}


def places() -> dict[Place, str]:
    """The waits that are needed."""
    functions: dict[Place, str] = {}
    counts: dict[tuple[str, str], int] = {}
    for place, function in sorted(waiting_places().items()):
        number = counts[place[0], function] = counts.get((place[0], function), 0) + 1
        elsewhere = "captured" in place[0]
        if (place[0], function, number) not in NO_NEED and not elsewhere:
            functions[place] = function
    return functions


PLACES = places()  # once: it parses every file of the harness


def name_of(place: Place) -> str:
    return f"{Path(place[0]).stem}.{PLACES[place]}:{place[1]}"


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_every_number_is_exact(machine: Accelerator, scenario: Callable[[Accelerator], None]) -> None:
    scenario(machine)


@pytest.mark.parametrize("place", sampled(4, PLACES), ids=name_of)
def test_a_wait_that_is_left_out_is_noticed(machine: Accelerator, place: Place) -> None:
    machine.deaf_to = place
    noticed = False
    for scenario in SCENARIOS:
        machine.restart()
        try:
            scenario(machine)
        except (AssertionError, JobFailed):
            noticed = True
            break
        if place in machine.waited:
            break
    assert place in machine.waited, "no scenario comes to this line: extend one"
    assert noticed, "without this wait every number is the same: extend a scenario, or leave the wait out"


def test_a_step_that_waits_for_the_device_has_no_time_of_the_device(machine: Accelerator) -> None:
    def step(*, reads: bool) -> None:
        machine.submit(0.002)
        machine.now = max(machine.now, machine.free_at) if reads else machine.now + 0.001

    assert of(CPU).busy_s(partial(step, reads=False), 5, 0.02) == about(5 * 0.002)
    assert of(CPU).busy_s(partial(step, reads=True), 5, 0.02) is None


# -- clocks ----------------------------------------------------------------------------------
@pytest.fixture
def readings(machine: Accelerator, monkeypatch: Patch) -> Accelerator:
    for module in (gpu_clock, sessions):
        monkeypatch.setattr(module, "gpu_of", lambda _: machine)
    return machine


@pytest.mark.parametrize("heated", [True, False])
@pytest.mark.series
def test_rounds_begin_when_the_clock_is_settled(
    readings: Accelerator, monkeypatch: Patch, *, heated: bool
) -> None:
    """After a compilation, the card is idle: its first steps are faster than all later ones."""
    machine = readings
    machine.limit_w = 0.6 * WATTS

    def hungry(program: Program) -> Compiled:  # half of eager's time, at half as much power again
        model: Any = program.module
        model.watts *= 1.5
        return times(machine, 0.5)(program)

    if not heated:
        monkeypatch.setattr(sessions, "heat", lambda *_: 0.0)
    ready = prepared(machine, {"hungry": hungry})
    machine.now += 60.0
    warmed = ready.warm_up()
    rounds, _ = ready.measure(10)
    times_s = [timed_round.seconds[BASELINE] for timed_round in rounds]
    assert (times_s[0] > 0.85 * median(times_s)) is heated
    if not heated:
        return
    assert 1.0 <= float(warmed["heated_s"] or 0.0) < 10.0
    metrics = ready.conclude()
    told = [metrics[""].get(f"gpu_{name}") for name in ("capped_share", "throttle_reasons")]
    assert (told, "throttled_rounds" in metrics[""]) == ([1.0, "power cap"], False)
    clocks = [float(metrics[name]["gpu_clock_mhz"] or 0) for name in (BASELINE, "hungry")]
    assert clocks[0] > clocks[1] > 800


def test_a_round_with_a_throttled_sample_is_taken_again(readings: Accelerator) -> None:
    machine, calls = readings, itertools.count()
    machine.limit_w = 10 * WATTS
    ready = prepared(machine, {"plain": times(machine, 1.0)})
    ready.warm_up()

    def brake() -> None:
        machine.limit_w = (0.5 if next(calls) // LONG == 5 else 10) * WATTS  # in the sixth sample

    before_each_step(ready._variants["plain"], brake)
    rounds, _ = ready.measure(10)
    assert [timed_round.seconds["plain"] for timed_round in rounds] == [about(0.030)] * 10
    assert ready.conclude()[""]["throttled_rounds"] == 1


# -- CUDA graphs that torch skips: its counters are set by hand -----------------------------------
REASON = "skipping cudagraphs due to mutated inputs"
SKIPPED = f"graphs: 1 graphs did not become CUDA graphs (the latest: {REASON} in foo)"


@pytest.mark.parametrize(
    ("skips", "copies", "pool", "says"),
    [
        (2, 0, 0, f"every CUDA graph was skipped; {REASON} in foo"),
        (1, 1, 0, SKIPPED),
        (1, 0, 100, SKIPPED),
        (0, 40, 0, "graphs: every replay copies 40 tensors, the weights among them"),
    ],
)
@pytest.mark.series
def test_graphs_that_were_skipped_and_copies_of_the_weights_are_told(
    machine: Accelerator, monkeypatch: Patch, skips: int, copies: int, pool: int, says: str
) -> None:
    """The compiler runs eager, and counts as torch does when it records or skips CUDA graphs."""

    def compile_it(program: Program) -> Compiled:
        compiled = inductor.with_cuda_graphs(program, "graphs", lambda: times(machine, 1.0)(program))
        counters["inductor"]["cudagraph_skips"] += skips
        counters["inductor"]["cudagraph_recorded_non_static_inputs"] += copies
        machine.pools += pool
        return compiled

    metric = SimpleNamespace(cudagraph_skip_reason=f"{REASON}\n  in foo", start_time_us=0, graph_op_count=0)
    monkeypatch.setattr("harness.counters.compilations", lambda: [metric, SimpleNamespace()])
    ready = opened(machine, {"graphs": compile_it})
    if skips == 2:
        failure = failed(lambda: ready.prepare("graphs"))
        assert (failure.status, str(failure)) == (Status.NOT_COMPILED, says)
        return
    status, _, _, notes = ready.prepare("graphs")
    assert (status, notes) == (Status.PASS, (says,))
