"""A whole session on a fake accelerator: every number is exact, and no wait may be left out."""

from __future__ import annotations

import gc
import io
import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch

from harness.codec import to_json
from harness.devices import of
from harness.failures import JobFailed
from harness.metrics import bandwidth, observing, peak, trace
from harness.metrics.energy import per_step_j
from harness.precision import precision
from harness.program import Compiled, Program
from harness.schema import BASELINE, Case, Job, Mode, Protocol, Record, Status
from harness.timing.rounds import Rounds
from harness.timing.workbench import Workbench
from harness.worker import session as sessions
from harness.worker.main import Answers, guarded, serve
from harness.worker.session import Session
from harness.worker.status_page import Activity
from harness.workload import Workload
from runner import engine
from runner.engine import job_run
from tests.accelerator import (
    ILLEGAL,
    WATTS,
    Accelerator,
    Block,
    Kernels,
    Model,
    Place,
    in_place_of_the_cpu,
    replaying,
    times,
    waiting_places,
)
from tests.worker.planted import CPU, silent
from torchduet.local_worker import LocalWorker

COLLECT = gc.collect

if TYPE_CHECKING:
    from typing_extensions import Self  # typing's own from Python 3.11

Compilers = Mapping[str, Callable[[Program], Compiled]]
NEARLY = 1e-3  # relative: launches


@pytest.fixture
def machine() -> Iterator[Accelerator]:
    with in_place_of_the_cpu(Accelerator()) as found:
        yield found


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small copies and products, no facts about packages, and no collections, which take most of the time."""
    monkeypatch.setattr(gc, "collect", lambda *_: 0)
    monkeypatch.setattr(sessions, "describe", lambda device: {"device": str(device)})
    monkeypatch.setattr(bandwidth, "COPIED_BYTES_ACCELERATED", 1 << 10)
    monkeypatch.setattr(peak, "SIZES_ACCELERATED", (8, 16))


def job(*candidates: str, mode: Mode = Mode.TRAINING, **protocol: Any) -> Job:
    case = Case(suite="none", name="m", mode=mode, batch_size=4, published_batch_size=4)
    settings = Protocol(**{"min_sample_s": 0.0, "threads": 1, **protocol})
    return Job(case=case, device="cpu", dtype="float32", candidates=candidates, protocol=settings)


def built(machine: Accelerator, **sizes: Any) -> Workload:
    model = Model(machine, **sizes)
    return Workload(module=model, args=(torch.ones(4, 8),), loss=lambda output, _: output.square().mean())


def session(machine: Accelerator, compilers: Compilers, **sizes: Any) -> Session:
    return Session(job(*compilers), silent, lambda _: built(machine, **sizes), compilers)


def about(value: float) -> Any:
    return pytest.approx(value, rel=NEARLY)


# -- what each wait is for ------------------------------------------------------------------


def of_a_session(machine: Accelerator) -> None:
    """First calls, warm-up, rounds, memory of a step."""
    compilers = {"fast": times(machine, 0.5, compile_s=1.0), "replayed": replaying(machine)}
    ready = session(machine, compilers)
    ready.open()
    for name in compilers:
        assert ready.prepare(name)[0] is Status.PASS
    assert ready.first_calls_s["fast"] == [about(1.015), about(0.015), about(0.015)]
    assert ready.compilation_latency_s("fast") == about(1.045 - 3 * 0.030)
    ready.warm_up()
    rounds, recompiled = ready.measure(3)
    assert recompiled == {}
    for one in rounds:
        assert one.seconds == {BASELINE: about(0.030), "fast": about(0.015), "replayed": about(0.030)}
    changed, numbers, failed = ready.finish()
    assert (changed, failed) == ({}, {})
    kept = numbers[BASELINE]["persistent_bytes"]
    assert isinstance(kept, int)
    peaks = {name: found["peak_memory_bytes"] for name, found in numbers.items()}
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
    case = Case(
        suite="none", name="m", mode=Mode.GENERATE, batch_size=4, published_batch_size=4, new_tokens=2
    )
    whole = replace(job("fast"), case=case)
    ready = Session(whole, silent, lambda _: work, {"fast": times(machine, 0.5)})
    ready.open()
    assert ready.prepare("fast")[0] is Status.PASS
    ready.warm_up()
    (one,), _ = ready.measure(1)
    assert one.prefill_s == {BASELINE: about(0.010), "fast": about(0.005)}
    assert one.seconds == {BASELINE: about(0.110), "fast": about(0.105)}


def of_a_single_step(machine: Accelerator) -> None:
    """Bandwidth, rate of products, energy, kernels, health: with their own clocks."""
    waits = of(CPU).synchronize
    machine.submit(7.0)
    with Kernels(machine, {"copy_": lambda args: args[0].numel() / 1e3}):
        assert bandwidth.bandwidth(500, CPU, waits, machine.clock) == about(2000)
    with Kernels(machine, {"mm": lambda args: args[0].numel() / 1e3}):
        rate, size = peak.measured(precision("float32", "cpu"), CPU, waits, machine.clock)
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
        @dataclass
        class Event:
            self_device_time_total: float
            device_type: str = "DeviceType.CPU"
            key: str = "kernel"

        return [Event(self.seen * 1e6)]


def of_a_trace(machine: Accelerator) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("torch.profiler.profile", lambda **_: Profile(machine))
        bench = Workbench(job(), CPU, built(machine))
        ended: Any = type("Ended", (), {"device": CPU, "synchronize": of(CPU).synchronize})
        assert trace.traced("x", bench.variant(), ended)[0] == {"kernel": about(30.0)}


SCENARIOS = (of_a_single_step, of_a_session, of_a_generation, of_a_trace)
NO_NEED = {
    ("harness/metrics/bandwidth.py", "bandwidth", 1): "before the first copy; the fastest copy counts",
    ("harness/metrics/peak.py", "measured", 1): "before the first product; the fastest counts",
    ("harness/timing/rounds.py", "lead_in", 1): "the sample that follows waits before it reads the clock",
}


def places() -> dict[Place, str]:
    """The waits that are needed."""
    found: dict[Place, str] = {}
    counts: dict[tuple[str, str], int] = {}
    for place, function in sorted(waiting_places().items()):
        number = counts[place[0], function] = counts.get((place[0], function), 0) + 1
        if (place[0], function, number) not in NO_NEED and "onnxrt" not in place[0]:
            found[place] = function
    return found


def name_of(place: Place) -> str:
    return f"{Path(place[0]).stem}.{places()[place]}:{place[1]}"


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_every_number_is_exact(machine: Accelerator, scenario: Callable[[Accelerator], None]) -> None:
    scenario(machine)


@pytest.mark.parametrize("place", places(), ids=name_of)
def test_a_wait_that_is_left_out_is_noticed(machine: Accelerator, place: Place) -> None:
    machine.deaf_to = place
    noticed = False
    for scenario in SCENARIOS:
        try:
            scenario(machine)
        except (AssertionError, JobFailed):
            noticed = True
            break
        if place in machine.waited:
            break
    assert place in machine.waited, "no scenario comes to this line: extend one"
    assert noticed, "without this wait every number is the same: extend a scenario, or leave the wait out"


def test_the_waits_that_nobody_needs_exist() -> None:
    known = {(file, function) for (file, _), function in waiting_places().items()}
    assert {(file, function) for file, function, _ in NO_NEED} <= known


# -- values that are overwritten ------------------------------------------------------------


def test_a_wrong_first_replay_is_seen_though_later_ones_overwrite_it(machine: Accelerator) -> None:
    ready = session(machine, {"wrong": replaying(machine, spoil=lambda number: 1.0 if number else 1.5)})
    ready.open()
    assert ready.prepare("wrong")[0] is Status.FAIL_ACCURACY


def test_a_replay_that_turns_wrong_is_seen_though_it_overwrites_the_checked_results(
    machine: Accelerator,
) -> None:
    ready = session(machine, {"late": replaying(machine, spoil=lambda number: 1.0 if number < 8 else 1.5)})
    ready.open()
    assert ready.prepare("late")[0] is Status.PASS
    ready.warm_up()
    ready.measure(6)
    assert set(ready.finish()[0]) == {"late"}


# -- memory ---------------------------------------------------------------------------------


def test_the_pool_of_a_second_candidate_with_graphs_is_unknown(machine: Accelerator) -> None:
    compilers = {"a": replaying(machine, 5000), "b": replaying(machine, 0), "plain": times(machine, 1.0)}
    ready = session(machine, compilers)
    ready.open()
    found = {name: ready.prepare(name)[2]["cudagraph_pool_bytes"] for name in compilers}
    assert found == {"a": 5000, "b": None, "plain": 0}
    ready.warm_up()
    peaks = {name: numbers["peak_memory_bytes"] for name, numbers in ready.finish()[1].items()}
    assert peaks["b"] is None
    assert peaks["plain"] == peaks[BASELINE]


class Clumsy:
    """A compiler that fails with the device's memory in a reference cycle, as tracebacks keep it."""

    def __call__(self, program: Program) -> Compiled:
        self.kept = [program]
        cycle: list[Any] = [program]
        cycle.append(cycle)
        del self.kept
        raise RuntimeError("cannot compile this")


@pytest.mark.parametrize("tidy", [True, False])
def test_a_failed_candidate_leaves_its_memory_to_the_next(
    machine: Accelerator, monkeypatch: pytest.MonkeyPatch, *, tidy: bool
) -> None:
    """Room for eager and one copy more, not for two."""
    machine.capacity = 250
    monkeypatch.setattr(gc, "collect", COLLECT)
    if not tidy:
        monkeypatch.setattr(Workbench, "tidy", lambda _: None)
    compilers: Compilers = {"clumsy": Clumsy(), "plain": times(machine, 1.0)}
    work = built(machine, weights=0, activations=0)
    model: Any = work.module
    whole = job(*compilers, accuracy=False)
    ready = Session(whole, silent, lambda _: work, compilers)
    model.weights = Block(machine, 1)
    ready.open()
    monkeypatch.setattr(Block, "__deepcopy__", lambda block, _: Block(machine, 100))
    gc.collect()
    gc.disable()
    try:
        with pytest.raises(JobFailed):
            ready.prepare("clumsy")
        with pytest.raises(JobFailed):
            ready.prepare("clumsy")
        if tidy:
            assert ready.prepare("plain")[0] is Status.PASS_DUE_TO_SKIP
            assert machine.retries == 0
        else:
            with pytest.raises(JobFailed) as full:
                ready.prepare("plain")
            assert full.value.status is Status.OOM
    finally:
        gc.enable()
        gc.collect()


def test_the_warm_up_goes_on_while_the_allocator_asks_the_driver(machine: Accelerator) -> None:
    ready = session(machine, {"plain": times(machine, 1.0)})
    ready.open()
    ready.prepare("plain")
    variant = ready._variants["plain"]
    step, left = variant.step, iter(range(6))

    def asking() -> Any:
        machine.driver_calls += next(left, None) is not None
        return step()

    variant.step = asking
    found = ready.warm_up()
    assert found["warmup_settled"]
    assert int(found["warmup_rounds"] or 0) + 1 >= 7
    ready.measure(2)
    numbers = ready.conclude()[""]
    assert (numbers["allocator_retries"], numbers["device_allocations"]) == (0, 0)


def test_an_allocator_that_never_settles_is_reported(machine: Accelerator) -> None:
    ready = session(machine, {"plain": times(machine, 1.0)})
    ready.open()
    ready.prepare("plain")
    variant = ready._variants["plain"]
    step = variant.step

    def full() -> Any:
        machine.retries += 1
        machine.driver_calls += 1
        return step()

    variant.step = full
    assert not ready.warm_up()["warmup_settled"]
    ready.measure(2)
    ready.measure(3)
    numbers = ready.conclude()[""]
    assert (numbers["allocator_retries"], numbers["device_allocations"]) == (5, 5)


# -- errors that stay -----------------------------------------------------------------------


def breaking(machine: Accelerator, at: int) -> Callable[[Program], Compiled]:
    """A compiler whose step number ``at`` leaves the device broken."""

    def compile_it(program: Program) -> Compiled:
        eager, steps = program.forward(), iter(range(1 << 30))

        def forward(*given: Any) -> Any:
            made = eager(*given)
            if next(steps) == at:
                machine.fail()
            return made

        return Compiled(forward=forward, region="forward", compiler_calls=lambda: 1)

    return compile_it


def ask(machine: Accelerator, compilers: Compilers, *requests: dict[str, Any]) -> list[dict[str, Any]]:
    answer = Answers(job(*compilers), silent, lambda _: built(machine), compilers)
    return [guarded(answer, request, of(CPU)) for request in requests]


def test_an_error_that_stays_is_reported_as_such_and_others_are_not(machine: Accelerator) -> None:
    compilers: Compilers = {"breaks": breaking(machine, 1), "clumsy": Clumsy()}
    prepare = [{"call": "prepare", "candidate": name} for name in ("clumsy", "breaks", "clumsy")]
    replies = ask(machine, compilers, {"call": "open"}, *prepare)
    assert "ok" in replies[0]
    assert "broken" not in replies[1]["failed"]
    assert replies[2]["failed"]["broken"] is True
    assert replies[2]["failed"]["status"] == "fail_to_run"
    assert replies[2]["failed"]["failure"]["message"].endswith(ILLEGAL)


class Indexed(Model):
    """Fails an assertion on the device where its integers are not the first ones (``bad``: always)."""

    def __init__(self, machine: Accelerator, *, bad: bool = False) -> None:
        super().__init__(machine)
        self.bad = bad

    def forward(self, x: torch.Tensor, places: torch.Tensor | None = None) -> torch.Tensor:
        if self.bad or (places is not None and places.tolist() != PLACES):
            self.machine.fail("CUDA error: device-side assert triggered")
        return super().forward(x)


PLACES = [3, 1, 2, 0]


def records_of(
    machine: Accelerator,
    work: Callable[[], Workload],
    compilers: Compilers,
    log: Path,
    *,
    fresh: bool = True,
    tell: Callable[[Activity], None] = silent,
) -> dict[str, Record]:
    """The records of a job whose workers are (``fresh``) processes of their own."""

    def launch(part: Job) -> AbstractContextManager[LocalWorker]:
        if fresh:
            machine.restart()
        return nullcontext(LocalWorker(lambda _: work(), compilers, log, tell))

    place = engine.Place(logs={"": "log"})
    context = engine.JobContext(candidates=tuple(compilers), place=place, reproduce=lambda *_: "")
    run = job_run.JobRun(job(*compilers, repeat=2), launch, context)
    return {record.candidate: record for record in run.run()}


@pytest.mark.parametrize("bad", [False, True])
def test_a_model_that_takes_no_other_data_is_measured_without(
    machine: Accelerator, tmp_path: Path, *, bad: bool
) -> None:
    def work() -> Workload:
        given = (torch.ones(4, 8), torch.tensor(PLACES))
        return replace(built(machine), module=Indexed(machine, bad=bad), args=given)

    (record,) = records_of(machine, work, {"plain": times(machine, 1.0)}, tmp_path / "log").values()
    if bad:
        assert (record.status, record.notes) == (Status.EAGER_1ST_RUN_FAIL, ())
        return
    assert record.status is Status.PASS
    assert record.parity is not None
    assert any(
        "other data: the model breaks the device on it (CUDA error: device-side" in why
        for why in record.parity.not_checked
    )


@pytest.mark.parametrize("rule", ["noise", "field"])
def test_what_is_kept_of_a_call_is_no_memory_that_a_replay_overwrites(
    machine: Accelerator, rule: str
) -> None:
    """A graph writes gradients and outputs where those of its last replay are."""
    ready = Session(
        job("replayed", parity=rule), silent, lambda _: built(machine), {"replayed": replaying(machine)}
    )
    ready.open()
    variant, _, calls, _ = ready._compile("replayed")
    assert calls is not None
    third = {name: tensor.clone() for name, tensor in calls.results[3].items()}
    with torch.no_grad():
        for parameter in variant.program.module.parameters():
            parameter.mul_(2.0)
    variant.step()
    gradient: Any = next(variant.program.module.parameters()).grad
    assert not torch.equal(gradient, third["gradient.linear.weight"])
    assert all(torch.equal(calls.results[3][name], tensor) for name, tensor in third.items())


def test_an_error_that_stays_in_the_last_step_is_its_own_candidates(
    machine: Accelerator, tmp_path: Path
) -> None:
    def tell(activity: Activity) -> None:
        if (activity.phase, activity.variant) == ("finish", "breaks"):
            breaks.clear()

    breaks = ["not yet"]

    def compile_it(program: Program) -> Compiled:
        eager = program.forward()

        def forward(*given: Any) -> Any:
            if not breaks:
                machine.fail()
            return eager(*given)

        return Compiled(forward=forward, region="forward", compiler_calls=lambda: 1)

    compilers: Compilers = {"a": times(machine, 1.0), "breaks": compile_it, "c": times(machine, 1.0)}
    found = records_of(machine, lambda: built(machine), compilers, tmp_path / "log", tell=tell)
    statuses = {name: record.status for name, record in found.items()}
    assert statuses == {"a": Status.PASS, "breaks": Status.FAIL_TO_RUN, "c": Status.PASS}
    assert all(record.samples is not None for record in found.values())


def test_the_worker_ends_after_it(machine: Accelerator, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("harness.worker.main.limit_memory", lambda _: None)
    machine.opened_by = 0  # by a process that forked this one
    lines = [{"call": "open", "job": to_json(job("eager"))}, {"call": "prepare", "candidate": "eager"}]
    out = io.StringIO()
    serve(io.StringIO("".join(json.dumps(line) + "\n" for line in lines)), out, silent)
    (reply,) = map(json.loads, out.getvalue().splitlines())
    assert reply["failed"]["broken"] is True
    assert reply["failed"]["status"] == "infra_error"
    message = reply["failed"]["failure"]["message"]
    assert message == "cpu cannot be used in this process: Cannot re-initialize CUDA in forked subprocess"


def test_a_device_without_memory_is_not_broken(machine: Accelerator) -> None:
    machine.capacity = 0
    (reply,) = ask(machine, {}, {"call": "open"})
    assert "broken" not in reply["failed"]


# -- the engine ------------------------------------------------------------------------------


@pytest.mark.parametrize("fresh", [True, False])
def test_others_are_measured_by_a_fresh_process_and_in_a_notebook_they_cannot_be(
    machine: Accelerator, tmp_path: Path, *, fresh: bool
) -> None:
    compilers: Compilers = {"breaks": breaking(machine, 4), "plain": times(machine, 1.0)}
    found = records_of(machine, lambda: built(machine), compilers, tmp_path / "log", fresh=fresh)
    broken, other = found["breaks"], found["plain"]
    assert broken.status is Status.FAIL_TO_RUN
    assert broken.failure is not None
    assert broken.failure.message == ILLEGAL
    assert other.status is (Status.PASS if fresh else Status.INFRA_ERROR)
    assert other.notes[0] == "measured in a fresh worker after breaks ended as fail_to_run"
    if fresh:
        assert other.samples is not None
        assert other.samples.baseline_s == (about(0.030), about(0.030))
        assert other.metrics["allocator_retries"] == 0


# -- turns -----------------------------------------------------------------------------------


def test_a_turn_begins_with_a_sample_that_is_not_timed(machine: Accelerator) -> None:
    bench = Workbench(job(), CPU, built(machine))
    rounds = Rounds(Protocol(), CPU, lambda phase, variant: None)
    variants = {BASELINE: bench.variant()}
    before = time.perf_counter()
    rounds.lead_in(variants, 2)
    assert time.perf_counter() - before >= 0.060
