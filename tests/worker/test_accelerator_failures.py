"""Sessions on a fake accelerator whose values are overwritten, whose memory ends, or that breaks."""

from __future__ import annotations

import gc
import io
import itertools
import json
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch._dynamo.utils import counters

from harness.codec import to_json
from harness.devices import of
from harness.parity.checks import DETERMINISTIC
from harness.program import Compiled, Program
from harness.schema import BASELINE, Job, Record, Status
from harness.timing.measure import stream_of
from harness.worker.main import Answers, guarded, serve
from harness.worker.status_page import Activity
from harness.workload import Workload
from runner import engine
from runner.engine import job_run
from tests.accelerator import (
    ILLEGAL,
    Accelerator,
    Block,
    Compilers,
    Model,
    about,
    before_each_step,
    built,
    job,
    opened,
    prepared,
    replaying,
    times,
)
from tests.factories import Capture, Patch, known
from tests.worker.planted import CPU, Of, changing, failed, silent, with_fault
from torchduet.caller import LocalWorker

COLLECT = gc.collect
HEATING_STEPS = 12  # of 30 ms, in three turns of two variants at the end of the load


# -- values that are overwritten ------------------------------------------------------------
@pytest.mark.parametrize(("wrong", "late"), [(range(1), False), (range(8, 999), True)], ids=["first", "late"])
def test_a_wrong_replay_that_others_overwrite_is_seen(
    machine: Accelerator, wrong: range, *, late: bool
) -> None:
    ready = opened(machine, {"w": replaying(machine, spoil=lambda number: 1.5 if number in wrong else 1.0)})
    assert ready.prepare("w")[0] is (Status.PASS if late else Status.FAIL_ACCURACY)
    if late:
        ready.warm_up()
        ready.measure(6)
        assert set(ready.finish()[0]) == {"w"}


# -- memory ---------------------------------------------------------------------------------
@pytest.mark.slow
def test_the_pool_of_a_second_candidate_with_graphs_is_unknown(machine: Accelerator) -> None:
    compilers = {"a": replaying(machine, 5000), "b": replaying(machine, 0), "plain": times(machine, 1.0)}
    ready = opened(machine, compilers)
    pools = {name: ready.prepare(name)[2]["cudagraph_pool_bytes"] for name in compilers}
    assert 4500 <= int(pools["a"] or 0) <= 5000  # of tensors; the pool has segments of 20,000
    assert (pools["b"], pools["plain"]) == (None, 0)
    ready.warm_up()
    peaks = {name: numbers["peak_memory_bytes"] for name, numbers in ready.finish()[1].items()}
    assert peaks["b"] is None
    assert peaks["plain"] == peaks[BASELINE]


class InFp64(Model):
    """A step in fp64 takes ``times`` as long, or, where it is ``full``, more memory than there is."""

    times, full = 1, False

    def work(self, seconds: float, host_s: float) -> Block | None:
        exact = self.linear.weight.dtype is torch.float64
        if exact and self.full:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return super().work(seconds * (self.times if exact else 1), host_s)


@pytest.mark.parametrize(("times_as_long", "limited"), [(10, False), (100, True)])
def test_fp64_takes_a_share_of_the_time_at_most(
    machine: Accelerator, capsys: Capture, times_as_long: int, *, limited: bool
) -> None:
    """6 or 60 s in all here. Beyond the share, other data is judged against eager."""
    module = InFp64(machine)
    module.times = times_as_long
    ready = opened(machine, {"plain": times(machine, 1.0)}, replace(built(machine), module=module))
    status, parity, *_ = ready.prepare("plain")
    assert (status, known(parity).reference) == (Status.PASS, "fp64")
    said = "no fp64 reference of other data: it would take about 60 s" in capsys.readouterr().out
    assert said is limited


def test_fp64_without_memory_keeps_some_on_the_host(machine: Accelerator, monkeypatch: Patch) -> None:
    kept: list[str] = []
    monkeypatch.setattr(InFp64, "full", property(lambda _: not kept))

    @contextmanager
    def on_the_host() -> Iterator[None]:
        kept.append("activations of a run")
        yield

    monkeypatch.setattr("torch.autograd.graph.save_on_cpu", on_the_host)
    work = replace(built(machine), module=InFp64(machine))
    _, parity, *_ = opened(machine, {"plain": times(machine, 1.0)}, work).prepare("plain")
    assert (known(parity).reference, len(kept) > 1) == ("fp64", True)


@pytest.mark.parametrize("counter", ["cudagraph_skips", "cudagraph_recorded_non_static_inputs"])
@pytest.mark.series
def test_a_graph_that_is_recorded_again_or_given_up_counts_as_a_recompilation(
    machine: Accelerator, monkeypatch: Patch, counter: str
) -> None:
    monkeypatch.setitem(counters["inductor"], counter, counters["inductor"][counter])
    ready = prepared(machine, {"a": times(machine, 1.0), "b": times(machine, 1.0)})
    ready.warm_up()
    assert ready.measure(2)[1] == {}
    left = iter(range(1))

    def record() -> None:
        counters["inductor"][counter] += next(left, None) is not None

    before_each_step(ready._variants["b"], record)
    assert ready.measure(2)[1] == {"b": 1}
    assert ready.measure(2)[1] == {}


def test_the_field_rule_says_how_eager_becomes_deterministic(machine: Accelerator) -> None:
    """Each call differs in the last bits, as atomic additions do."""
    calls = itertools.count()
    module = Of(lambda x, model: model(x) * (1.0 + 1e-6 * next(calls)), Model(machine))
    work = replace(built(machine), module=module)
    status, _, _, notes = opened(machine, {"a": with_fault(changing())}, work, parity="field").prepare("a")
    assert status is Status.EAGER_TWO_RUNS_DIFFER
    assert DETERMINISTIC in notes


def clumsy(program: Program) -> Compiled:
    """A compiler that fails with the device's memory in a reference cycle, as tracebacks keep it."""
    cycle: list[Any] = [program]
    cycle.append(cycle)
    raise RuntimeError("cannot compile this")


def test_a_failed_candidate_leaves_its_memory(machine: Accelerator, monkeypatch: Patch) -> None:
    """Room for eager and one copy more, not for two."""
    machine.capacity = 250
    monkeypatch.setattr(gc, "collect", COLLECT)
    work = built(machine, weights=0, activations=0)
    model: Any = work.module
    model.weights = Block(machine, 1)
    compilers: Compilers = {"clumsy": clumsy, "plain": times(machine, 1.0)}
    ready = opened(machine, compilers, work, accuracy=False)
    monkeypatch.setattr(Block, "__deepcopy__", lambda block, _: Block(machine, 100))
    gc.collect()
    gc.disable()
    try:
        for _ in range(2):
            failed(lambda: ready.prepare("clumsy"))
        assert ready.prepare("plain")[0] is Status.PASS_DUE_TO_SKIP
        assert machine.retries == 0
    finally:
        gc.enable()
        gc.collect()


@pytest.mark.parametrize("settles", [True, False])
def test_the_warm_up_goes_on_while_the_allocator_asks(machine: Accelerator, *, settles: bool) -> None:
    ready = prepared(machine, {"plain": times(machine, 1.0)})
    left = iter(range(HEATING_STEPS + 6 if settles else 10**6))

    def ask_the_driver() -> None:
        asks = next(left, None) is not None
        machine.driver_calls += asks
        machine.retries += asks

    before_each_step(ready._variants["plain"], ask_the_driver)
    warm_up = ready.warm_up()
    assert warm_up["warmup_settled"] is settles
    assert int(warm_up["warmup_rounds"] or 0) + 1 >= 7
    ready.measure(2)
    ready.measure(3)
    numbers = ready.conclude()[""]
    steps = 0 if settles else 5 * stream_of(0.030)  # of five rounds
    assert (numbers["allocator_retries"], numbers["device_allocations"]) == (steps, steps)


# -- errors that stay -----------------------------------------------------------------------
def breaking(machine: Accelerator, when: Callable[[int], bool]) -> Callable[[Program], Compiled]:
    """A compiler whose step number n leaves the device broken where ``when(n)`` holds."""
    steps = itertools.count()

    def spoiled(output: Any) -> Any:
        if when(next(steps)):
            machine.fail()
        return output

    return with_fault(changing(spoiled))


def test_an_error_that_stays_is_reported_as_such_and_others_are_not(machine: Accelerator) -> None:
    compilers: Compilers = {"breaks": breaking(machine, lambda step: step == 1), "clumsy": clumsy}
    answers = Answers(job(*compilers), silent, lambda _: built(machine), compilers)
    requests = ({"call": "open"}, *({"call": "prepare", "candidate": name} for name in ("clumsy", "breaks")))
    opened, tidy, broken = (guarded(answers, request, of(CPU)) for request in requests)
    assert "ok" in opened
    assert "broken" not in tidy["failed"]
    failed = broken["failed"]
    assert (failed["broken"], failed["status"]) == (True, "fail_to_run")
    assert failed["failure"]["message"].endswith(ILLEGAL)


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


@pytest.mark.parametrize("where", ["forward", "loss", "everywhere"])
@pytest.mark.series
def test_a_model_without_other_data_is_measured_too(machine: Accelerator, tmp_path: Path, where: str) -> None:
    """``forward``: where the weights are balanced. ``everywhere``: on its own data, too."""

    def loss(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        if target.tolist() != PLACES:
            machine.fail("CUDA error: device-side assert triggered")
        return output.square().mean()

    def work() -> Workload:
        places = torch.tensor(PLACES)
        if where == "loss":
            return replace(built(machine), target=places, loss=loss)
        module = Indexed(machine, bad=where == "everywhere")
        return replace(built(machine), module=module, args=(torch.ones(4, 8), places))

    (record,) = records_of(machine, work, {"plain": times(machine, 1.0)}, tmp_path / "log").values()
    if where == "everywhere":
        assert (record.status, record.notes) == (Status.EAGER_1ST_RUN_FAIL, ())
        return
    assert record.status is Status.PASS
    why = "; ".join(known(record.parity).not_checked)
    assert "other data: the model breaks the device on it (CUDA error: device-side" in why


def test_a_lasting_error_in_the_last_step_is_its_own_candidates(machine: Accelerator, tmp_path: Path) -> None:
    said: list[Activity] = []
    breaks = breaking(machine, lambda _: (said[-1].phase, said[-1].variant) == ("finish", "breaks"))
    compilers: Compilers = {"a": times(machine, 1.0), "breaks": breaks, "c": times(machine, 1.0)}
    records = records_of(machine, lambda: built(machine), compilers, tmp_path / "log", tell=said.append)
    statuses = {name: record.status for name, record in records.items()}
    assert statuses == {"a": Status.PASS, "breaks": Status.FAIL_TO_RUN, "c": Status.PASS}
    assert all(record.samples is not None for record in records.values())


def test_the_worker_ends_after_it(machine: Accelerator, monkeypatch: Patch) -> None:
    monkeypatch.setattr("harness.worker.main.limit_memory", lambda _: None)
    machine.opened_by = 0  # by a process that forked this one
    lines = [{"call": "open", "job": to_json(job("eager"))}, {"call": "prepare", "candidate": "eager"}]
    out = io.StringIO()
    serve(io.StringIO("".join(json.dumps(line) + "\n" for line in lines)), out, silent)
    (reply,) = map(json.loads, out.getvalue().splitlines())
    assert (reply["failed"]["broken"], reply["failed"]["status"]) == (True, "infra_error")
    message = reply["failed"]["failure"]["message"]
    assert message == "cpu cannot be used in this process: Cannot re-initialize CUDA in forked subprocess"


# -- the engine ------------------------------------------------------------------------------
@pytest.mark.parametrize("fresh", [True, False])
@pytest.mark.series
def test_others_are_measured_by_a_fresh_process_and_in_a_notebook_they_cannot_be(
    machine: Accelerator, tmp_path: Path, *, fresh: bool
) -> None:
    compilers: Compilers = {"breaks": breaking(machine, lambda step: step == 4), "plain": times(machine, 1.0)}
    records = records_of(machine, lambda: built(machine), compilers, tmp_path / "log", fresh=fresh)
    broken, other = records["breaks"], records["plain"]
    assert (broken.status, known(broken.failure).message) == (Status.FAIL_TO_RUN, ILLEGAL)
    assert other.status is (Status.PASS if fresh else Status.INFRA_ERROR)
    assert other.notes[0] == "measured in a fresh worker after breaks ended as fail_to_run"
    if fresh:
        assert known(other.samples).baseline_s == (about(0.030), about(0.030))
        assert other.metrics["allocator_retries"] == 0
