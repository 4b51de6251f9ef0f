"""Cold and warm caches, other allocators, and the flags for them."""

import dataclasses
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from harness.schema import Environment, Extras, Failure, Job, Record, Scalar, Status
from runner.engine.processes import Run, with_fresh_runs
from runner.errors import UsageError
from runner.plan.allocators import library_of
from runner.plan.interpreter import cache_settings, worker_environment
from tests.factories import make_job


class Worker:
    """Compiles slowly in an empty cache folder and fast in a full one; notes what it was asked."""

    def __init__(self) -> None:
        self.jobs: list[Job] = []

    def run(self, job: Job, caches: Path | None) -> Iterator[Record]:
        self.jobs.append(job)
        for candidate in job.candidates:
            full = caches is not None and any(caches.glob(f"{candidate}*"))
            if caches is not None:
                (caches / candidate).touch()
            metrics: dict[str, Scalar] = {"compilation_latency_s": 1.0 if full else 9.0}
            yield Record(job=job, candidate=candidate, status=Status.PASS, metrics=metrics)


def job(compile_runs: int) -> Job:
    return make_job(candidates=("a", "b"), extras=Extras(compile_runs=compile_runs))


def starts_of(job: Job, run: Run, folder: Path, stop: Callable[[], bool] = lambda: False) -> list[Record]:
    steps = with_fresh_runs(job, job.candidates, run, folder, stop)
    return [step for step in steps if isinstance(step, Record)]


def test_the_folder_is_gone_when_the_run_is_abandoned(tmp_path: Path) -> None:
    def run(one: Job, caches: Path | None) -> Iterator[Record]:
        if caches is not None:
            raise KeyboardInterrupt
        yield from ()

    with pytest.raises(KeyboardInterrupt):
        starts_of(job(1), run, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_compile_runs_are_cold_then_warm_in_rounds_of_all_candidates(tmp_path: Path) -> None:
    worker = Worker()
    records = starts_of(job(3), worker.run, tmp_path)
    for record in records:
        runs = [(c.round, c.start, c.metrics["compilation_latency_s"]) for c in record.compilations]
        assert runs == [(n, *how) for n in range(3) for how in (("cold", 9.0), ("warm", 1.0))]
        assert record.metrics["compilation_latency_s"] == 9.0  # of the process that is timed
    *alone, whole = worker.jobs
    assert whole == job(3)
    assert all(not (one.protocol.accuracy or one.protocol.performance) for one in alone)
    order = [one.candidates[0] for one in alone]
    rounds = [order[place : place + 4] for place in range(0, 12, 4)]
    assert all(one[:2] == one[2:] and {*one[:2]} == {"a", "b"} for one in rounds)
    assert rounds[0] != rounds[1]  # every second round is in reverse
    assert list(tmp_path.iterdir()) == []


def test_a_candidate_that_fails_is_not_compiled_again_and_costs_the_others_nothing(tmp_path: Path) -> None:
    def run(one: Job, caches: Path | None) -> Iterator[Record]:
        for record in Worker().run(one, caches):
            broken = Failure(kind="Broken", message="no", phase="compile")
            fails = record.candidate == "b"
            yield dataclasses.replace(record, metrics={}, failure=broken) if fails else record

    a, b = starts_of(job(2), run, tmp_path)
    assert len(a.compilations) == 4
    assert [(c.start, c.failure) for c in b.compilations] == [("cold", "Broken: no")]


def test_compile_runs_end_when_the_run_is_stopped(tmp_path: Path) -> None:
    worker = Worker()
    starts_of(job(5), worker.run, tmp_path, lambda: len(worker.jobs) >= 3)
    assert len(worker.jobs) == 3 + 1  # the last call measures, and ends at once by itself


def test_a_candidate_that_has_its_record_is_left_out_and_the_others_are_compiled(tmp_path: Path) -> None:
    """As with ``--resume``, which measures the missing candidates only."""

    def run(one: Job, caches: Path | None) -> Iterator[Record]:
        missing = dataclasses.replace(one, candidates=tuple(name for name in one.candidates if name == "b"))
        yield from Worker().run(missing, caches) if missing.candidates else ()

    (b,) = starts_of(job(2), run, tmp_path)
    assert [c.start for c in b.compilations] == ["cold", "warm"] * 2


def test_eager_is_not_compiled_and_each_environment_compiles_alone(tmp_path: Path) -> None:
    names = ("old", "new")
    environments = tuple(Environment(name=name, python=name, asked=name) for name in names)
    candidates = ("inductor@old", "eager@new", "inductor@new")
    one = dataclasses.replace(job(1), candidates=candidates, environments=environments)
    worker = Worker()
    starts_of(one, worker.run, tmp_path)
    alone = {(j.candidates, tuple(e.name for e in j.environments)) for j in worker.jobs[:-1]}
    assert alone == {(("inductor@old",), ("old",)), (("inductor@new",), ("new",))}


def test_a_worker_s_caches_and_preloaded_libraries() -> None:
    found = worker_environment(None, {"LD_PRELOAD": "mine.so"}, preload="x.so", caches=Path("/c"))
    assert found["LD_PRELOAD"] == "x.so:mine.so"
    assert found["TORCHINDUCTOR_CACHE_DIR"].startswith("/c/")
    assert found["TRITON_CACHE_DIR"].startswith("/c/")
    assert not {"LD_PRELOAD", "TRITON_CACHE_DIR"} & worker_environment(None, {}).keys()
    assert cache_settings(None) == {}


# -- allocators ----------------------------------------------------------------------------------


def test_an_allocator_is_the_first_name_that_the_system_knows_and_a_missing_one_is_a_sentence() -> None:
    known = {"tcmalloc": "libtcmalloc.so.4"}
    assert library_of("tcmalloc", find=known.get) == "libtcmalloc.so.4"
    assert library_of("default") is None
    with pytest.raises(UsageError, match=r"^--allocator: jemalloc is not installed here; install it \(lib"):
        library_of("jemalloc", find=known.get)
