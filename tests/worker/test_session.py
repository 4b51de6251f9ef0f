"""A worker's session in this process, on toy models and with planted faults."""

from __future__ import annotations

import gc
import itertools
import time
import weakref
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch

from harness.schema import BASELINE, Job, Mode, Protocol, Round, Status
from harness.timing.warm_up import MOST_ROUNDS, warm_up
from harness.worker.session import Session
from harness.worker.status_page import Activity
from tests.cli.command import TOYS
from tests.factories import Patch, known, make_job
from tests.worker.planted import Backend, failed, failing, refusing, silent, untouched, wrong_by

pytestmark = pytest.mark.usefixtures("fresh_compiler")


def job(name: str = "linear", mode: Mode = Mode.TRAINING, dtype: str = "float32", **protocol: Any) -> Job:
    settings = Protocol(**{"min_sample_s": 0.0, "threads": 1, **protocol})
    more = {"batch_size": 16, "candidates": ("eager",), "protocol": settings}
    return make_job(name, suite=TOYS, mode=mode, dtype=dtype, **more)


def opened(of: Job, **planted: Backend) -> Session:
    """``planted``: compilers besides the real ones."""
    ready = Session(of, silent, compilers=planted)
    ready.open()
    return ready


# -- the whole of it -----------------------------------------------------------------------
def test_a_model_is_measured_without_what_torch_2_0_lacks(monkeypatch: Patch) -> None:
    missing = property(refusing(AttributeError("'Parameter' object has no attribute 'nbytes'")))
    monkeypatch.setattr(torch.Tensor, "nbytes", missing)
    model, _ = Session(job("norm", Mode.INFERENCE), silent).open()
    assert model.parameter_bytes == 4 * model.parameters


@pytest.mark.parametrize("mode", [Mode.TRAINING, Mode.INFERENCE])
@pytest.mark.series
def test_a_session_from_open_to_finish(mode: Mode) -> None:
    said: list[Activity] = []
    ready = Session(job("norm", mode), said.append)
    model, environment = ready.open()
    assert model.parameters == 32 * 64 + 64 + 64 + 64 + 64 * 8 + 8
    assert model.parameter_bytes == 4 * model.parameters
    assert model.input_shapes == ("input.0.0: float32[16, 32]",)
    assert environment["torch"] == torch.__version__
    assert environment["threads"] == 1
    for candidate in ("eager", "aot_eager"):
        status, judged, metrics, _ = ready.prepare(candidate)
        parity = known(judged)
        assert status is Status.PASS
        assert (parity.failed, parity.reference, parity.eager_bit_equal) == (0, "fp64", True)
        assert parity.tensors == (11 if mode is Mode.TRAINING else 4)
        assert isinstance(metrics["compilation_latency_s"], float)
        assert metrics["unique_graphs"] == (candidate == "aot_eager")
        region = "forward+loss" if mode is Mode.TRAINING else "forward"
        assert metrics["compiled_region"] == (region if candidate == "aot_eager" else "none")
        early = ready.preview(candidate, 3)
        assert [sorted(timed.seconds) for timed in early] == [sorted((BASELINE, candidate))] * 3
    warmed = ready.warm_up()
    assert warmed["iterations_per_sample"] == 1
    rounds, recompiled = ready.measure(5)
    more, _ = ready.measure(2)
    without, _ = ready.measure(2, resting=("eager",))
    assert [sorted(timed.seconds) for timed in without] == [["aot_eager", BASELINE]] * 2
    assert recompiled == {}
    assert len(rounds) == 5
    for timed_round in [*rounds, *more]:
        assert sorted(timed_round.order) == sorted(timed_round.seconds) == ["aot_eager", BASELINE, "eager"]
        assert all(seconds > 0 for seconds in timed_round.seconds.values())
        assert all(faults >= 0 for faults in timed_round.minor_faults.values())
    assert len({timed_round.order for timed_round in [*rounds, *more]}) > 1
    _, numbers, failed_late = ready.finish()
    assert failed_late == {}
    assert set(numbers) == {BASELINE, "eager", "aot_eager"}
    assert numbers[BASELINE] == numbers["eager"]
    others = 2 * 64 * 4 + 8 + 16 * 32 * 4 + 16 * 8
    assert numbers[BASELINE]["persistent_bytes"] == model.parameter_bytes + others
    phases = [activity.phase for activity in said]
    assert list(dict.fromkeys(phases)) == [
        "build", "eager", "fp64", "compile", "check", "warm up", "measure", "finish",
    ]  # fmt: skip
    assert said[-1].rounds == 9
    assert {a.variant for a in said if a.phase == "measure"} == {BASELINE, "eager", "aot_eager"}


@pytest.fixture
def even(monkeypatch: Patch) -> None:
    """Every look at the clock is a millisecond after the last, so that times settle at once."""
    ticks = itertools.count()
    monkeypatch.setattr(time, "perf_counter", lambda: next(ticks) / 1000)


@pytest.mark.usefixtures("even")
def test_samples_are_as_long_as_asked() -> None:
    ready = opened(job(accuracy=False, min_sample_s=0.0105))
    ready.prepare("eager")
    assert ready.warm_up()["iterations_per_sample"] == 11
    (timed_round,), _ = ready.measure(1)
    assert timed_round.seconds[BASELINE] * 11 == pytest.approx(0.001)  # so long takes any sample


# -- copies -------------------------------------------------------------------------------------
@pytest.mark.slow
def test_variants_have_copies_of_their_own() -> None:
    ready = opened(job("norm"))
    for candidate in ("eager", "aot_eager"):
        ready.prepare(candidate)
    programs = {name: variant.program for name, variant in ready._variants.items()}
    assert len({program.module for program in programs.values()}) == 3

    def tensors(name: str) -> list[torch.Tensor]:
        module = programs[name].module
        return [*module.parameters(), *module.buffers(), *programs[name].args]

    with torch.no_grad():
        for tensor in tensors("eager"):
            tensor.fill_(77)
    for name in (BASELINE, "aot_eager"):
        assert not any(bool((tensor == 77).any()) for tensor in tensors(name))
    assert ready.prepare("aot_eager")[0] is Status.PASS  # the source of the copies is untouched, too


def test_the_seed_decides_the_weights() -> None:
    sessions = (opened(job(accuracy=False, seed=seed)) for seed in (3, 3, 4))
    first, same, other = (session._variants[BASELINE].program for session in sessions)
    assert all(map(torch.equal, first.module.parameters(), same.module.parameters()))
    assert not torch.equal(next(first.module.parameters()), next(other.module.parameters()))
    assert torch.equal(first.args[0], same.args[0])


# -- compilers that go wrong ------------------------------------------------------------------------
@pytest.mark.parametrize("mode", [Mode.TRAINING, Mode.INFERENCE])
@pytest.mark.slow
def test_one_operation_off_by_a_hundredth_fails_accuracy(mode: Mode) -> None:
    ready = opened(job(mode=mode), wrong=wrong_by(1.01, "addmm"), right=wrong_by(1.0, "addmm"))
    assert ready.prepare("right")[0] is Status.PASS
    verdict = ready.prepare("wrong")
    assert failing(verdict).failure is not None
    assert known(verdict[1]).failed > 0
    assert verdict[2]["unique_graphs"] == 1


def test_a_forward_that_no_compiler_touched_is_not_compiled() -> None:
    ready = opened(job(), pretending=untouched)
    error = failed(lambda: ready.prepare("pretending"))
    assert (error.status, "pretending" in error.failure.message) == (Status.NOT_COMPILED, True)
    assert set(ready._variants) == {BASELINE}


@pytest.mark.parametrize(
    ("error", "status", "kind"),
    [
        (NotImplementedError("no such op\n  in this compiler"), Status.FAIL_TO_RUN, "NotImplementedError"),
        (SystemExit("gave up"), Status.FAIL_TO_RUN, "SystemExit"),
        (torch.OutOfMemoryError("CUDA out of memory. Tried"), Status.OOM, "OutOfMemoryError"),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried"), Status.OOM, "RuntimeError"),
        (ValueError("out of memory is only a word here"), Status.FAIL_TO_RUN, "ValueError"),
    ],
)
def test_a_compiler_that_raises(error: BaseException, status: Status, kind: str) -> None:
    ready = opened(job(), refusing=refusing(error))
    failure = failed(lambda: ready.prepare("refusing"))
    told = failure.failure
    assert (failure.status, told.kind, told.phase) == (status, kind, "compile")
    assert told.message == " ".join(str(error).split())
    assert ready.prepare("eager")[0] is Status.PASS  # the others go on


def test_a_baseline_of_its_own_precision_is_timed_and_parity_is_checked_in_the_candidates() -> None:
    going = opened(replace(job(dtype="bfloat16"), baseline_dtype="float32"))
    status, parity, _, _ = going.prepare("eager")
    assert (status, known(parity).eager_bit_equal) == (Status.PASS, True)
    dtypes = {name: variant.program.args[0].dtype for name, variant in going._variants.items()}
    assert dtypes == {BASELINE: torch.float32, "eager": torch.bfloat16}
    going.warm_up()
    assert all(set(timed_round.seconds) == set(dtypes) for timed_round in going.measure(2)[0])


def test_use_eval_mode_trains_in_eval_mode() -> None:
    program = opened(job("norm", use_eval_mode=True))._variants[BASELINE].program
    assert (program.training, program.module.training) == (True, False)


def test_loss_of_the_output_replaces_the_suites() -> None:
    of = job()
    plain, changed = (
        opened(replace(of, case=replace(of.case, loss=loss)))._variants[BASELINE].step()
        for loss in ("own", "sum")
    )
    assert float(plain[0].detach()) != float(changed[0].detach())
    assert float(changed[0].detach()) == pytest.approx(float(changed[1].detach().sum()), rel=1e-5)


def test_a_tolerance_of_the_case_is_the_field_rules() -> None:
    for parity, delta in (("field", 0.25), ("noise", 1e-4)):
        of = job(parity=parity)
        going = opened(replace(of, case=replace(of.case, tolerance=0.25)))
        assert known(going._checks).rule.delta == delta


# -- warm-up: how long it lasts, and whether its last round counts --------------------------------
class Compiling:
    """Stands for ``Recompilations``: in round i something was compiled where ``rounds`` holds i."""

    def __init__(self, *rounds: int) -> None:
        self._rounds = rounds
        self._now = -1

    def start(self) -> None:
        self._now += 1

    def counts(self) -> dict[str, int]:
        return {"inductor": 1} if self._now in self._rounds else {}


def rounds_of(*seconds: float) -> Iterator[Round]:
    """Of these times, the last one again and again."""
    for value in itertools.chain(seconds, itertools.repeat(seconds[-1])):
        yield Round(order=("v",), seconds={"v": value}, minor_faults={"v": 0.0})


@pytest.mark.parametrize(
    ("seconds", "compiling", "taken", "counts"),
    [
        ((1.0,), (), 2, True),
        ((9.0, 1.0), (), 3, True),
        ((1.0,), (0,), 2, True),  # in the first round alone
        ((1.0,), (1,), 2, False),
        ((0.01,), (), 3, True),  # short rounds cost little
        (tuple(0.5**n for n in range(40)), (), MOST_ROUNDS, False),  # never settles
    ],
)
def test_rounds_until_times_settle(
    seconds: tuple[float, ...], compiling: tuple[int, ...], taken: int, *, counts: bool
) -> None:
    watched: Any = Compiling(*compiling)
    warming = warm_up(rounds_of(*seconds), watched)
    assert len(warming.rounds) == taken
    assert warming.counting == (warming.rounds[-1:] if counts else ())
    assert warming.fastest_s("v") == min(seconds[:taken])


def test_time_ends_it_too() -> None:
    watched: Any = Compiling()
    clock = itertools.count(0.0, 4.0)
    warming = warm_up(rounds_of(*(0.5**n for n in range(40))), watched, lambda: next(clock))
    assert (len(warming.rounds), warming.settled, warming.counting) == (2, False, ())


def ready_for(min_sample_s: float) -> Session:
    ready = opened(job(min_sample_s=min_sample_s))
    ready.prepare("eager")
    return ready


@pytest.mark.usefixtures("even")
def test_the_last_round_of_the_warm_up_counts_where_it_can() -> None:
    ready = ready_for(0.0)
    warmed = ready.warm_up()
    assert warmed["warmup_rounds_kept"] == 1
    (kept,) = ready._kept
    assert len(ready.first_calls_s["eager"]) - 3 == warmed["warmup_rounds"]
    first, second, _ = ready.measure(3)[0]
    assert (first, second.order) == (kept, kept.order[::-1])
    assert ready.measure(1)[0][0] is not kept


@pytest.mark.usefixtures("even")
def test_a_dropped_candidate_takes_no_memory() -> None:
    ready = ready_for(0.0)
    dropped = weakref.ref(ready._variants["eager"])
    ready.keep_only(())
    ready.warm_up()
    gc.collect()
    assert dropped() is None


@pytest.mark.usefixtures("even")
@pytest.mark.slow
def test_a_round_of_other_variants_or_shorter_samples_does_not_count() -> None:
    ready = ready_for(0.0)
    ready.warm_up()
    (kept,) = ready._kept
    ready.keep_only(())
    rounds, _ = ready.measure(2)
    assert kept not in rounds
    assert [set(timed_round.seconds) for timed_round in rounds] == [{BASELINE}] * 2
    longer = ready_for(0.005)
    assert longer.warm_up()["warmup_rounds_kept"] == 0
