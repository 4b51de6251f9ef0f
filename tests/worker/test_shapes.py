"""Streams of shapes, the batches of a step with dynamic shapes, and start-up races, with toy models."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from harness.failures import JobFailed
from harness.loading.sizes import batches
from harness.protocol import CACHES, LIBRARY
from harness.schema import SIZES, Case, CompilerOptions, Extras, Job, Mode, Protocol, Status
from harness.shapes.sizes import PASSES
from harness.timing.start_up import LEAST_STEPS, STEPS, StartUp
from harness.timing.step import Variant
from harness.worker.session import Session
from harness.workload import Workload
from tests.factories import Patch, known, make_job
from tests.worker.planted import Of, Trial, failing, silent


def session(stream: str, candidate: str, *, accuracy: bool = True) -> Session:
    torch._dynamo.reset()

    def build(case: Case) -> Workload:
        torch.manual_seed(0)
        module = Of(lambda given, linear: linear(given).relu(), nn.Linear(8, 4))
        return Workload(module=module, args=(torch.randn(case.batch, 8),))

    job = make_job(
        mode=Mode.INFERENCE,
        candidates=(candidate,),
        protocol=Protocol(accuracy=accuracy, performance=False, start=SIZES, threads=1),
        extras=Extras(shapes=stream),
    )
    opened = Session(job, silent, build)
    opened.open()
    return opened


@pytest.mark.parametrize(
    ("settings", "compiled_again"),
    [("", 1), ("[dynamo.automatic_dynamic_shapes=False]", 4), ("[dynamic=True]", 0)],
)
@pytest.mark.series
def test_each_setting_compiles_as_often_as_in_a_stream_of_sizes(settings: str, compiled_again: int) -> None:
    name = f"dynamo_eager{settings}"
    worker = session("batch=3,4,5,6,7", name)
    status, parity, numbers, _ = worker.prepare(name)
    assert status is Status.PASS, parity
    assert numbers["recompiles"] == compiled_again
    assert len(worker.first_calls_s[name]) == 5 * PASSES


def test_a_suite_that_cannot_be_imported_fails_in_the_call_that_builds(tmp_path: Path) -> None:
    suite = tmp_path / "lacking.py"
    suite.write_text("import no_such_library\n")
    protocol, extras = Protocol(start=SIZES), Extras(shapes="batch=3,4")
    job = make_job(mode=Mode.INFERENCE, suite=str(suite), protocol=protocol, extras=extras)
    opened = Session(job, silent)  # outside of the calls, whose errors are answered
    with pytest.raises(JobFailed, match="no_such_library") as caught:
        opened.open()
    assert caught.value.status is Status.MODEL_FAIL_TO_LOAD


def test_a_stream_runs_without_the_check_of_parity() -> None:
    worker = session("batch=3,4", "dynamo_eager", accuracy=False)
    assert worker.prepare("dynamo_eager")[0] is Status.PASS_DUE_TO_SKIP
    assert len(worker.first_calls_s["dynamo_eager"]) == 2 * PASSES


def test_a_stream_begins_with_the_first_buffers_where_compiling_has_run_the_model() -> None:
    """As a trace of a normalization does."""
    x = torch.randn(8, 4) + 5
    work = Workload(module=nn.BatchNorm1d(4), args=(x,), loss=lambda output, _: output.square().mean())
    before = Trial(workload=work, dtype="float32", mode=Mode.TRAINING).variant()
    before.program.module(x)
    here = before.with_inputs(replace(work, args=(x[:4],)))
    here.restore()
    assert not bool(here.program.module.get_buffer("running_mean").any())
    assert torch.equal(here.program.args[0], x[:4])


# -- several batches in one step ------------------------------------------------------------------
DYNAMIC = CompilerOptions(dynamic_batch=True)


class Seen(nn.Linear):
    """Remembers the batches that it was given."""

    def __init__(self) -> None:
        super().__init__(4, 4, bias=False)
        self.batches: list[int] = []

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        self.batches.append(len(values))
        return super().forward(values)


def variant(batch: int, options: CompilerOptions, *, training: bool) -> Variant:
    def loss(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        assert len(output) == len(target)
        return (output - target).square().sum()

    torch.manual_seed(0)
    work = Workload(module=Seen(), args=(torch.randn(batch, 4),), target=torch.zeros(batch, 4), loss=loss)
    mode = Mode.TRAINING if training else Mode.INFERENCE
    return Trial(workload=work, dtype="float32", mode=mode).variant(options=options)


@pytest.mark.parametrize("training", [True, False])
def test_the_models_own_batch_comes_last(training: bool) -> None:
    subject = variant(8, DYNAMIC, training=training)
    assert batches(subject.program) == (4, 6, 8)
    _, output = subject.step()
    assert subject.program.module.batches == [4, 6, 8]
    assert len(output) == 8


def test_a_step_of_generation_has_its_own_batch_alone() -> None:
    program = variant(8, DYNAMIC, training=False).program
    drive: Any = object()
    assert batches(replace(program, drive=drive)) == (8,)


def test_gradients_are_those_of_the_models_own_batch() -> None:
    plain, dynamic = (variant(8, options, training=True) for options in (CompilerOptions(), DYNAMIC))
    for subject in (plain, dynamic):
        subject.step()
    gradients = [known(next(subject.program.module.parameters()).grad) for subject in (plain, dynamic)]
    assert torch.equal(*gradients)


@pytest.mark.parametrize(("batch", "sizes"), [(1, (1,)), (2, (2,)), (3, (2, 3)), (4, (2, 3, 4))])
def test_a_small_batch_has_few_sizes_and_none_of_one(batch: int, sizes: tuple[int, ...]) -> None:
    assert batches(variant(batch, DYNAMIC, training=False).program) == sizes


def test_the_record_has_the_batch_that_was_built() -> None:
    """Not the one that was asked for: a suite may take no notice of it."""
    job = make_job(mode=Mode.INFERENCE, batch_size=16)
    built = Workload(module=Seen(), args=(torch.randn(4, 4),))
    facts, _ = Session(job, lambda _: None, lambda _: built).open()
    assert facts.batch_size == 4


# -- a start-up race: what a process loads and stores, with torch's own files --------------------------
def racing(candidate: str, start: str, stored: Path, *, accuracy: bool = False) -> Job:
    protocol = Protocol(performance=False, accuracy=accuracy, start=start, stored=str(stored), threads=1)
    return make_job(mode=Mode.INFERENCE, candidates=(candidate,), protocol=protocol)


def race(asked: Job, scale: float = 1.0) -> Session:
    def build(_: Case) -> Workload:
        torch.manual_seed(0)
        last = nn.Linear(8, 4)
        with torch.no_grad():
            last.weight.mul_(scale)
        module = nn.Sequential(nn.Linear(8, 8), nn.GELU(), last)
        return Workload(module=module, args=(torch.randn(4, 8),))

    opened = Session(asked, silent, build)
    opened.open()
    return opened


@pytest.fixture
def caches(tmp_path: Path, monkeypatch: Patch) -> Path:
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "caches"))
    torch._dynamo.reset()
    return tmp_path


def test_eager_is_raced_from_its_first_step(tmp_path: Path) -> None:
    raced = race(racing("eager", "eager", tmp_path))
    status, parity, numbers, _ = raced.prepare("eager")
    assert (status, parity) == (Status.PASS_DUE_TO_SKIP, None)
    assert len(raced.first_calls_s["eager"]) == STEPS
    assert "compilation_latency_s" not in numbers
    assert list(tmp_path.iterdir()) == []


def test_a_slow_step_ends_the_race_early(tmp_path: Path) -> None:
    protocol = replace(racing("eager", "eager", tmp_path).protocol, max_measure_s=0.0)
    assert len(StartUp(protocol).steps(lambda: None, lambda: None)) == LEAST_STEPS


@pytest.mark.slow
def test_a_cold_start_writes_a_cache_file_that_is_of_this_torch_alone(
    caches: Path, monkeypatch: Patch
) -> None:
    """The other torch is a stand-in: only the part of the keys that names the build differs."""
    from torch._inductor import codecache

    stored = caches / "stored"
    stored.mkdir()
    first = race(racing("inductor", "cold", stored)).prepare("inductor")[2]
    assert (stored / CACHES).stat().st_size > 1000
    assert first["compile_cache_misses"]
    for other, start in ((False, "own"), (True, "other")):
        torch._dynamo.reset()
        monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(caches / start))
        if other:
            monkeypatch.setattr(codecache, "torch_key", lambda: b"another torch")
        numbers = race(racing("inductor", "cache file", stored)).prepare("inductor")[2]
        assert bool(numbers["compile_cache_hits"]) is not other
        assert bool(numbers["compile_cache_misses"]) is other


def test_a_file_that_torch_cannot_load_is_an_error(tmp_path: Path) -> None:
    (tmp_path / CACHES).write_bytes(b"no")
    start_up = StartUp(racing("inductor", "cache file", tmp_path).protocol)
    with pytest.raises(ValueError, match="torch loads nothing from the cache file that it has written"):
        start_up.load()


@pytest.mark.long
@pytest.mark.filterwarnings("ignore:.*LeafSpec:FutureWarning")
def test_a_package_that_computes_something_else_fails_parity(caches: Path) -> None:
    opened = race(racing("aot_inductor", "cold", caches), scale=1.02)
    opened.prepare("aot_inductor")
    assert (caches / LIBRARY).exists()
    loaded = race(racing("aot_inductor", "package", caches, accuracy=True))
    assert failing(loaded.prepare("aot_inductor"))
