"""``--start-up``: the order of its processes, when a form overtakes eager, and what is said about it."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from harness.protocol import CACHES, LIBRARY
from harness.schema import (
    EAGER_START,
    SIZES,
    Compilation,
    Extras,
    Failure,
    Job,
    Protocol,
    Record,
    Scalar,
    Status,
)
from runner.analysis.derive import summarize
from runner.analysis.start_up import crossing
from runner.engine.experiments import next_attempt
from runner.engine.worker_session import parts_of
from runner.plan.interpreter import worker_environment
from runner.reports import lines_plot
from runner.store.joined import key_of
from tests.attempts import Measure, processes_of, results_by_name
from tests.factories import make_environments, make_job, make_parity, make_record
from torchduet.frames import frames_of


@dataclass
class Worker:
    """Stores files in a cold start, as compilers do. ``stores``: the files of each candidate."""

    stores: dict[str, Sequence[str]]
    fails: tuple[str, str] = ("", "")  # candidate and start
    wrong: str = ""  # a start whose results differ
    asked: list[tuple[str, str, bool]] = field(default_factory=list)
    empty: list[bool] = field(default_factory=list)

    def run(self, job: Job, caches: Path | None) -> Iterator[Record]:
        if caches is None:
            yield from (make_record(job, name, status=Status.SKIP) for name in job.candidates)
            return
        (candidate,), protocol = job.candidates, job.protocol
        start = protocol.start
        self.asked.append((candidate, start, protocol.accuracy))
        self.empty.append(not any(caches.iterdir()))
        stored = Path(protocol.stored)
        if start == "cold":
            (caches / "code").write_bytes(b"12345")
            for name in self.stores.get(candidate, ()):
                (stored / name).write_bytes(b"123")
        record = Record(
            job=job, candidate=candidate, status=Status.PASS_DUE_TO_SKIP, first_calls_s=(2.0, 1.0)
        )
        if (candidate, start) == self.fails:
            record = replace(record, failure=Failure(kind="Broken", message="no", phase="prepare"))
        if protocol.accuracy:
            record = replace(record, status=Status.PASS)
            if start == self.wrong:
                parity = make_parity(Status.FAIL_ACCURACY, name="output")
                record = replace(record, status=Status.FAIL_ACCURACY, parity=parity)
        yield record


def compilations(job: Job, worker: Worker, folder: Path) -> dict[str, tuple[Compilation, ...]]:
    results = results_by_name(processes_of(job, worker.run, folder))
    return {name: record.compilations for name, record in results.items() if record.compilations}


def job_of(rounds: int = 1, candidates: tuple[str, ...] = ("a", "b")) -> Job:
    return make_job(candidates=candidates, extras=Extras(start_up=rounds))


def test_a_round_begins_with_eager_and_cold_starts_then_with_what_they_stored(tmp_path: Path) -> None:
    worker = Worker(stores={"a": (CACHES,), "b": (LIBRARY,)})
    by_name = compilations(job_of(2), worker, tmp_path)
    starts = {name: [(c.round, c.start) for c in by_name[name]] for name in by_name}
    for name, last in (("a", "cache file"), ("b", "package")):
        assert starts[name] == [(n, start) for n in (0, 1) for start in ("eager", "cold", "warm", last)]
    assert [c.stored_bytes for c in by_name["a"][:4]] == [None, None, 5, 3]
    assert [c.status.value for c in by_name["b"]] == [
        *("pass_due_to_skip", "pass_due_to_skip", "pass", "pass"),
        *("pass_due_to_skip",) * 4,  # the first round checks the parity
    ]
    loaded = [start for _, start, accuracy in worker.asked if accuracy]
    assert sorted(loaded) == ["cache file", "package", "warm", "warm"]
    for (_, start, _), empty in zip(worker.asked, worker.empty, strict=True):
        assert empty == (start != "warm")
    assert list(tmp_path.iterdir()) == []


def test_a_form_that_fails_is_not_tried_again_and_a_wrong_one_says_so(tmp_path: Path) -> None:
    worker = Worker(stores={"a": (CACHES, LIBRARY)}, fails=("a", "cache file"), wrong="package")
    begun = compilations(job_of(2, ("a",)), worker, tmp_path)["a"]
    told = [(c.round, c.start, c.status.value, c.failure) for c in begun if c.failure]
    assert told == [
        (0, "cache file", "pass_due_to_skip", "Broken: no"),
        (0, "package", "fail_accuracy", "output: RMS error 0.5 is above the limit 0.0012"),
    ]
    assert [c.start for c in begun if c.round == 1] == ["eager", "cold", "warm"]


def test_each_environment_has_its_own_eager(tmp_path: Path) -> None:
    job = job_of(1, ("a@old", "eager@new", "a@new"))
    job = replace(job, environments=make_environments("old", "new"))
    worker = Worker(stores={})
    by_name = compilations(job, worker, tmp_path)
    assert {name: [c.start for c in runs] for name, runs in by_name.items()} == {
        name: ["eager", "cold", "warm"] for name in ("a@old", "a@new")
    }
    assert {name for name, start, _ in worker.asked if start == "eager"} == {"eager@old", "eager@new"}


def test_in_an_environment_eager_is_prepared_as_a_compiler() -> None:
    job = replace(job_of(1, ("eager@new",)), environments=make_environments("new"))
    for start, compilers in (("eager", {"eager": "eager@new"}), ("", {})):
        part, *control = parts_of(replace(job, protocol=replace(job.protocol, start=start)), job.candidates)
        assert part.compilers == compilers
        assert bool(control) is not bool(start)


def test_a_run_that_is_killed_in_a_round_goes_on_in_it(tmp_path: Path) -> None:
    """What the killed round has stored is gone: it begins again, and keeps what it has."""
    worker = Worker(stores={"a": (CACHES,)})
    whole = processes_of(job_of(2), worker.run, tmp_path)
    for kept in range(0, len(whole), 3):  # elsewhere in each of the two rounds
        again = processes_of(job_of(2), worker.run, tmp_path, before=whole[:kept])
        assert sorted(map(key_of, again)) == sorted(map(key_of, whole))


# -- when a form overtakes eager ---------------------------------------------------------------------
@pytest.mark.parametrize(
    ("form", "eager", "step"),
    [
        ([3.0, 3.5, 4.0, 4.5], [1.0, 2.0, 3.0, 4.0], None),
        ([2.5, 3.0, 3.5, 4.0], [1.0, 2.0, 3.0, 4.0], 4),  # at the same time counts
        ([2.5, 2.6, 2.7, 2.8], [1.0, 2.0, 3.0, 4.0], 3),
        ([0.5, 1.0, 1.5, 2.0], [1.0, 2.0, 3.0, 4.0], 1),
        ([0.5, 2.1, 2.2, 2.3], [1.0, 2.0, 3.0, 4.0], 3),  # it was behind again at the second step
        ([2.5, 2.6, 2.7], [1.0, 2.0, 3.0, 4.0, 5.0], 3),
    ],
)
def test_from_which_step_a_form_leads(form: list[float], eager: list[float], step: int | None) -> None:
    assert crossing(form, eager) == step


def steps(first: float, step: float, count: int = 10) -> tuple[float, ...]:
    return (first, *(step for _ in range(count - 1)))


def raced(forms: dict[str, list[tuple[float, ...]]], *, speedup: float = 2.0) -> Record:
    """A record with races. Its eager step takes 0.1 s in rounds, and has this speedup."""
    record = make_record(make_job(), speedup=speedup, jitter=0.001)
    sizes = {"warm": 2_000_000}
    runs = tuple(
        Compilation(start=start, round=number, first_calls_s=calls, stored_bytes=sizes.get(start))
        for start, races in forms.items()
        for number, calls in enumerate(races)
    )
    return replace(record, compilations=runs)


def test_frames_and_the_picture_have_the_races_and_streams() -> None:
    record = raced({"eager": [steps(0.1, 0.1)], "cold": [steps(0.5, 0.05)]})
    calls = frames_of([record]).first_calls
    assert list(calls[calls["start"] == "cold"]["call_s"]) == pytest.approx(steps(0.5, 0.05))
    drawn = lines_plot.render(summarize([record]))
    assert sorted(drawn) == ["toys_float32_start_up.png", "toys_float32_start_up.svg"]
    assert lines_plot.render(summarize([make_record(make_job())])) == {}
    stream = Compilation(start=SIZES, round=0, first_calls_s=(0.9, 0.2, 0.5, 0.4))
    record = make_record(make_job(extras=Extras(shapes="batch=4,6")), speedup=1.5)
    calls = frames_of([replace(record, compilations=(stream,))]).first_calls
    assert list(calls.query("start == 'sizes'")["size"]) == [4, 6, 4, 6]


# -- cold and warm caches (--compile-runs), allocators -----------------------------------------
class Compiler:
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


def starts_of(job: Job, run: Measure, folder: Path, stop: Callable[[], bool] = lambda: False) -> list[Record]:
    return [*results_by_name(processes_of(job, run, folder, stop)).values()]


def test_the_folder_is_gone_when_the_run_is_abandoned(tmp_path: Path) -> None:
    def run(planned: Job, caches: Path | None) -> Iterator[Record]:
        if caches is not None:
            raise KeyboardInterrupt
        yield from Compiler().run(planned, caches)

    with pytest.raises(KeyboardInterrupt):
        starts_of(job(1), run, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_compile_runs_are_cold_then_warm_in_rounds_of_all_candidates(tmp_path: Path) -> None:
    worker = Compiler()
    records = starts_of(job(3), worker.run, tmp_path)
    for record in records:
        runs = [(c.round, c.start, c.metrics["compilation_latency_s"]) for c in record.compilations]
        assert runs == [(n, *how) for n in range(3) for how in (("cold", 9.0), ("warm", 1.0))]
        assert record.metrics["compilation_latency_s"] == 9.0  # of the process that is timed
    whole, *alone = worker.jobs
    assert whole == job(3)  # every candidate has a number before any compiles in processes of their own
    assert all(not (planned.protocol.accuracy or planned.protocol.performance) for planned in alone)
    order = [planned.candidates[0] for planned in alone]
    rounds = [order[place : place + 4] for place in range(0, 12, 4)]
    assert all(names[:2] == names[2:] and {*names[:2]} == {"a", "b"} for names in rounds)
    assert rounds[0] != rounds[1]  # every second round is in reverse
    assert list(tmp_path.iterdir()) == []


def test_a_candidate_that_fails_is_not_compiled_again_and_costs_the_others_nothing(tmp_path: Path) -> None:
    def run(planned: Job, caches: Path | None) -> Iterator[Record]:
        for record in Compiler().run(planned, caches):
            broken = Failure(kind="Broken", message="no", phase="compile")
            fails = record.candidate == "b"
            yield replace(record, metrics={}, failure=broken) if fails else record

    a, b = starts_of(job(2), run, tmp_path)
    assert len(a.compilations) == 4
    assert [(c.start, c.failure) for c in b.compilations] == [("cold", "Broken: no")]


@pytest.mark.parametrize("extras", [Extras(start_up=2), Extras(compile_runs=2), Extras(shapes="batch=1,2")])
def test_a_round_that_an_error_of_this_program_ended_is_not_repeated(extras: Extras) -> None:
    planned = make_job(candidates=("a", "b"), extras=extras)
    records = [make_record(planned, name) for name in planned.candidates]
    attempt = next_attempt(planned, records)
    assert attempt is not None
    assert attempt.round == 0
    lost = Record(
        job=planned, candidate="a", status=Status.INFRA_ERROR, experiment=attempt.experiment, start="cold"
    )
    after = next_attempt(planned, [*records, lost])
    assert after is None or after.round == 1


def test_compile_runs_end_when_the_run_is_stopped(tmp_path: Path) -> None:
    worker = Compiler()
    starts_of(job(5), worker.run, tmp_path, lambda: len(worker.jobs) >= 3)
    assert len(worker.jobs) == 3


def test_eager_is_not_compiled_and_each_environment_compiles_alone(tmp_path: Path) -> None:
    candidates, both = ("inductor@old", "eager@new", "inductor@new"), make_environments("old", "new")
    planned = replace(job(1), candidates=candidates, environments=both)
    worker = Compiler()
    starts_of(planned, worker.run, tmp_path)
    alone = {(j.candidates, tuple(e.name for e in j.environments)) for j in worker.jobs[1:]}
    assert alone == {(("inductor@old",), ("old",)), (("inductor@new",), ("new",))}


@pytest.mark.parametrize("wrong", [True, False])
def test_a_candidate_fails_if_a_stream_of_shapes_fails_parity(tmp_path: Path, *, wrong: bool) -> None:
    def run(planned: Job, _: Path | None) -> Iterator[Record]:
        status = Status.FAIL_ACCURACY if wrong and planned.protocol.start == SIZES else Status.PASS
        yield Record(job=planned, candidate=planned.candidates[0], status=status)

    planned = make_job(candidates=("a",), extras=Extras(shapes="batch=4"), protocol=Protocol(processes=1))
    (record,) = starts_of(planned, run, tmp_path)
    assert [c.start for c in record.compilations] == [EAGER_START, SIZES]
    assert record.status is (Status.FAIL_ACCURACY if wrong else Status.PASS)
    assert (record.failure.kind if record.failure else "") == ("AnotherSize" if wrong else "")


def test_a_worker_s_caches_and_preloaded_libraries() -> None:
    variables = worker_environment(None, {"LD_PRELOAD": "mine.so"}, caches=Path("/c"))
    assert variables["LD_PRELOAD"] == "mine.so"
    assert variables["TORCHINDUCTOR_CACHE_DIR"].startswith("/c/")
    assert variables["TRITON_CACHE_DIR"].startswith("/c/")
    assert not {"LD_PRELOAD", "TRITON_CACHE_DIR"} & worker_environment(None, {}).keys()
