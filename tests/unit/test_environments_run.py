"""One job in several environments, with fake workers: how rounds alternate, who is paired, who fails."""

import contextlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from harness.codec import to_json
from harness.schema import BASELINE, Job, Protocol, Record, Status
from runner.cli.commands import job_command
from runner.engine import JobContext, Place
from runner.engine.job_run import JobRun
from runner.engine.worker_process import WorkerLost
from runner.plan.environments.spec import candidates_in
from tests.factories import known, make_environments, make_job, make_parity
from tests.unit.test_execute import Reply, Script, failed, lost

# -- workers that pretend ----------------------------------------------------------------
OLD, NEW = make_environments("old", "new")
ENVIRONMENTS = replace(OLD, torch="2.2"), replace(NEW, torch="2.13")
SPEED = {"old": 1.0, "new": 0.5}  # of eager: seconds
Fault = Reply | WorkerLost


class Machine:
    """All workers of a job, and the clock. ``faults`` at (environment, session of it, call, candidate)."""

    def __init__(self, faults: Mapping[tuple[str, int, str, str], Fault] | None = None) -> None:
        self.faults = dict(faults or {})
        self.calls: list[tuple[str, str]] = []
        self.jobs: list[Job] = []
        self.running: dict[str, str] = {}
        self.recompiling: dict[str, dict[str, int]] = {}
        self.disagree = ""
        self.unsteady = False
        self.now = 0.0
        self.iterations: set[int] = set()
        self.open = 0
        self.most_open = 0

    @contextlib.contextmanager
    def launch(self, job: Job) -> Iterator["Worker"]:
        self.jobs.append(job)
        session = sum(other.environments == job.environments for other in self.jobs)
        self.open += 1
        self.most_open = max(self.most_open, self.open)
        try:
            yield Worker(self, job, session)
        finally:
            self.open -= 1


class Worker(Script):
    def __init__(self, machine: Machine, job: Job, session: int) -> None:
        self._machine = machine
        self._env = job.environments[0].name
        here = (self._env, session)
        super().__init__({(1, *at[2:]): fault for at, fault in machine.faults.items() if at[:2] == here})
        self.sessions, self.job = 1, job
        self.running = machine.running.get(self._env, BASELINE)

    def call(self, request: Mapping[str, Any], deadline: float) -> Reply:
        self._machine.calls.append((self._env, f"{request['call']} {request.get('candidate', '')}".strip()))
        return super().call(request, deadline)

    def _open(self, request: Mapping[str, Any]) -> Reply:
        self.imported = request.get("imported")
        return {**super()._open(request), "environment": {"torch": self.job.environments[0].torch}}

    def _export(self, request: Mapping[str, Any]) -> Reply:
        Path(request["path"]).write_text("weights")
        return {}

    def _cross_parity(self, request: Mapping[str, Any]) -> Reply:
        if self.imported is None:
            return {"status": "pass_due_to_skip", "parity": None, "notes": []}
        assert Path(self.imported).read_text() == "weights"
        bad = self._machine.disagree == self._env
        status = Status.FAIL_ACCURACY if bad else Status.PASS
        parity = to_json(make_parity(status))
        status = Status.EAGER_TWO_RUNS_DIFFER if self._machine.unsteady else status
        return {"status": status.value, "parity": parity, "notes": ["a note"]}

    def _prepare(self, request: Mapping[str, Any]) -> Reply:
        return {**super()._prepare(request), "notes": [], "first_calls_s": [9.0, 1.0]}

    def _warm_up(self, request: Mapping[str, Any]) -> Reply:
        iterations = 4 if self._env == "old" else 7
        calls = {name: [9.0, 1.0, 1.0, iterations / 8] for name in request["candidates"]}
        return {"metrics": {"iterations_per_sample": iterations}, "first_calls_s": calls}

    def _measure(self, request: Mapping[str, Any]) -> Reply:
        self._machine.iterations.add(request["iterations"])
        order = [BASELINE, *request["candidates"]]
        self._machine.now += 1.0
        eager = SPEED[self._env] * (1 + 0.001 * self._machine.now)
        seconds = {name: eager / (1 + place) for place, name in enumerate(order)}
        timed_round = {"order": order, "seconds": seconds, "minor_faults": dict.fromkeys(order, 0.0)}
        return {"rounds": [timed_round], "recompiled": self._machine.recompiling.get(self._env, {})}

    def _finish(self, request: Mapping[str, Any]) -> Reply:
        size = 10 if self._env == "old" else 20
        return {"metrics": {BASELINE: {"peak_memory_bytes": size}, "a": {"peak_memory_bytes": 5}}}


# -- tests --------------------------------------------------------------------------------
def make(compilers: tuple[str, ...], **protocol: Any) -> Job:
    return make_job(
        candidates=candidates_in(compilers, ENVIRONMENTS),
        environments=ENVIRONMENTS,
        protocol=Protocol(repeat=6, **protocol),
    )


def run(
    machine: Machine,
    folder: Path,
    compilers: tuple[str, ...] = ("a",),
    *,
    candidates: tuple[str, ...] | None = None,
    stop: Callable[[], bool] = lambda: False,
    job: Job | None = None,
    **protocol: Any,
) -> dict[str, Record]:
    job = job or make(compilers, **protocol)
    logs = {env.name: f"cases/x/envs/{env.name}/output.log" for env in ENVIRONMENTS}
    context = JobContext(
        candidates=candidates or job.candidates,
        place=Place(logs=logs, folder=folder),
        reproduce=job_command,
        stop=stop,
        clock=lambda: machine.now,
    )
    records = list(JobRun(job, machine.launch, context).run())
    by_name = {record.candidate: record for record in records}
    assert (len(by_name), machine.open) == (len(records), 0)
    assert list(folder.iterdir()) == []  # nothing that was exported is left
    return by_name


def rounds_of(machine: Machine) -> list[str]:
    return [env for env, call in machine.calls if call == "measure"]


def test_all_workers_are_open_at_once_and_rounds_alternate_in_random_order(tmp_path: Path) -> None:
    records = run(machine := Machine(), tmp_path)
    assert machine.most_open == 2
    calls = [
        call for call in machine.calls if call[1].split()[0] in ("open", "export", "cross_parity", "prepare")
    ]
    assert calls == [
        *(("old", "open"), ("old", "export"), ("new", "open"), ("new", "cross_parity")),
        *(("old", "prepare a"), ("new", "prepare a")),
    ]
    orders = rounds_of(machine)
    pairs = [tuple(orders[i : i + 2]) for i in range(0, len(orders), 2)]
    assert len(pairs) == 6
    assert set(pairs) == {("old", "new"), ("new", "old")}  # each round has both, in either order
    assert set(records) == {"a@old", "eager@new", "a@new"}
    assert all(record.status is Status.PASS for record in records.values())
    last = {name: record.first_calls_s[-1:] for name, record in records.items()}
    assert last == {"a@old": (0.5,), "a@new": (0.875,), "eager@new": ()}


def test_pairs_come_from_the_same_round(tmp_path: Path) -> None:
    records = run(machine := Machine(), tmp_path)
    assert machine.iterations == {7}
    old, eager, new = (known(records[name].samples) for name in ("a@old", "eager@new", "a@new"))
    # eager of another environment against the reference's; a compiler against its own environment's
    assert eager.baseline_s == old.baseline_s == old.reference_s == new.reference_s == eager.reference_s
    assert (new.baseline_s, new.candidate_s) == (eager.candidate_s, tuple(s / 2 for s in new.baseline_s))
    assert old.candidate_s == tuple(s / 2 for s in old.baseline_s)
    assert old.round_index == new.round_index == eager.round_index == tuple(range(6))
    # places count over all that ran in the round
    for places in zip(old.baseline_position, old.candidate_position, new.baseline_position, strict=True):
        assert places in {(0, 1, 2), (2, 3, 0)}
    assert eager.reference_position == eager.baseline_position
    assert {s.iterations_per_sample for s in (old, eager, new)} == {7}  # the same everywhere
    drift = [a / b for a, b in zip(eager.baseline_s, eager.candidate_s, strict=True)]
    assert all(abs(ratio - 2.0) < 0.01 for ratio in drift)  # what both share cancels


def test_records_name_the_environment(tmp_path: Path) -> None:
    records = run(machine := Machine(), tmp_path)
    assert all(record.env == name.split("@")[1] for name, record in records.items())
    old, new = records["a@old"], records["a@new"]
    assert (old.environment["torch"], new.environment["torch"]) == ("2.2", "2.13")
    assert old.env_parity is None
    assert new.env_parity is not None
    assert records["eager@new"].parity == records["eager@new"].env_parity
    assert records["eager@new"].notes == ("a note",)
    peaks = {
        name: (record.metrics["baseline_peak_memory_bytes"], record.metrics["candidate_peak_memory_bytes"])
        for name, record in records.items()
        if record.env == "new"
    }
    assert peaks == {"eager@new": (10, 20), "a@new": (20, 5)}  # eager's baseline is the reference
    assert "--envs=old=old --envs=new=new --backend=a" in new.reproduce
    assert "--envs=new" not in old.reproduce
    # a worker is told of its own environment and compilers alone
    told = [(job.environments[0].name, job.candidates) for job in machine.jobs]
    assert told == [("old", ("a",)), ("new", ("a",))]


def test_eager_that_was_asked_for_is_a_second_process_of_the_reference(tmp_path: Path) -> None:
    machine = Machine()
    records = run(machine, tmp_path, ("eager", "a"))
    assert (set(records), machine.most_open) == ({"eager@old", "a@old", "eager@new", "a@new"}, 3)
    control = known(records["eager@old"].samples)
    assert all(abs(a / b - 1) < 0.01 for a, b in zip(control.baseline_s, control.candidate_s, strict=True))


@pytest.mark.parametrize("unsteady", [False, True])
def test_another_result_is_a_failure_of_its_eager_alone(tmp_path: Path, *, unsteady: bool) -> None:
    """Where eager differs from itself, it is no failure of the environment."""
    machine = Machine()
    machine.disagree, machine.unsteady = "new", unsteady
    records = run(machine, tmp_path)
    eager, compiled = records["eager@new"], records["a@new"]
    assert eager.status is (Status.EAGER_TWO_RUNS_DIFFER if unsteady else Status.FAIL_ACCURACY)
    assert compiled.status is Status.PASS
    assert (compiled.env_parity is None) is unsteady
    assert unsteady or known(compiled.env_parity).failed
    assert eager.samples is not None  # timed all the same


@pytest.mark.parametrize(
    ("fault", "candidate", "status", "workers"),
    [
        ({("new", 1, "prepare", "a"): failed(Status.FAIL_TO_RUN)}, "a@new", Status.FAIL_TO_RUN, 2),
        ({("new", 1, "prepare", "a"): lost("a", phase="compile")}, "a@new", Status.CRASH, 4),
        ({("old", 1, "measure", ""): lost("b")}, "b@old", Status.CRASH, 4),
        ({("new", 1, "measure", ""): failed(Status.FAIL_TO_RUN)}, "a@new", Status.FAIL_TO_RUN, 2),
        ({("new", 1, "finish", ""): lost("a")}, "a@new", Status.CRASH, 2),
        ({}, "a@new", Status.RECOMPILES, 2),
    ],
)
def test_a_fault_in_one_environment_costs_its_candidate_alone(
    tmp_path: Path,
    fault: dict[tuple[str, int, str, str], Fault],
    candidate: str,
    status: Status,
    workers: int,
) -> None:
    machine = Machine(fault)
    machine.running["new"] = "a"
    machine.recompiling = {} if fault else {"new": {"a": 1}}
    records = run(machine, tmp_path, ("a", "b"))
    assert len(machine.jobs) == workers  # two begin again where one of them died
    costs = records.pop(candidate)
    assert costs.status is status
    assert known(costs.failure).log == f"cases/x/envs/{costs.env}/output.log"
    for record in records.values():
        assert record.status is Status.PASS
        assert len(known(record.samples)) >= 6  # more where it compiled in some rounds
        fresh = any(f"fresh worker after {candidate} ended as crash" in note for note in record.notes)
        assert fresh == (workers == 4)


@pytest.mark.parametrize("timed_out", [False, True])
def test_in_a_worker_lost_while_comparing_no_candidate_runs(tmp_path: Path, *, timed_out: bool) -> None:
    """Each of them has the reason, and not what the next call to the dead worker says."""
    fault = lost(timed_out=timed_out, phase="cross parity")
    machine = Machine({("new", 1, "cross_parity", ""): fault})
    records = run(machine, tmp_path, ("a", "b"))
    assert len(machine.jobs) == 2
    assert ("new", "prepare a") not in machine.calls
    for name in ("eager@new", "a@new", "b@new"):
        assert records[name].status is (Status.TIMEOUT if timed_out else Status.CRASH)
        assert known(records[name].failure).phase == "cross parity"
    assert all(records[name].samples is not None for name in ("a@old", "b@old"))


@pytest.mark.parametrize("fault", [failed(Status.MODEL_FAIL_TO_LOAD), lost(phase="build")])
def test_without_the_reference_the_others_still_have_their_own_eager(tmp_path: Path, fault: Fault) -> None:
    records = run(Machine({("old", 1, "open", ""): fault}), tmp_path)
    expected = Status.CRASH if isinstance(fault, WorkerLost) else Status.MODEL_FAIL_TO_LOAD
    assert records["a@old"].status is records["eager@new"].status is expected
    assert "environment old could not run this model" in known(records["eager@new"].failure).message
    samples = known(records["a@new"].samples)
    assert (samples.reference_s, len(samples)) == ((), 6)


def test_out_of_memory_halves_the_batch_for_all(tmp_path: Path) -> None:
    machine = Machine({("new", 1, "open", ""): failed(Status.EAGER_1ST_RUN_OOM)})
    records = run(machine, tmp_path)
    assert [job.case.batch_size for job in machine.jobs] == [8, 8, 4, 4]
    assert all(record.status is Status.PASS for record in records.values())
    assert all("batch 4 instead of 8" in record.notes[0] for record in records.values())


def test_weights_that_cannot_be_exported_are_a_note(tmp_path: Path) -> None:
    records = run(Machine({("old", 1, "export", ""): failed(Status.FAIL_TO_RUN)}), tmp_path)
    assert records["eager@new"].status is Status.PASS_DUE_TO_SKIP
    assert records["eager@new"].env_parity is None
    assert any("has its own weights and inputs" in note for note in records["eager@new"].notes)


def test_what_is_missing_is_measured_with_the_reference(tmp_path: Path) -> None:
    machine = Machine()
    records = run(machine, tmp_path, ("a", "b"), candidates=("b@new",))
    assert (set(records), len(known(records["b@new"].samples).reference_s)) == ({"b@new"}, 6)
    told = [(job.environments[0].name, job.candidates) for job in machine.jobs]
    assert told == [("old", ()), ("new", ("b",))]


def test_a_compiler_that_is_not_there_is_skipped_with_its_reason(tmp_path: Path) -> None:
    job = replace(make(("a",)), unavailable={"a@new": "a cannot be used here: it is not installed"})
    records = run(Machine(), tmp_path, job=job)
    assert records["a@new"].status is Status.SKIP
    assert records["a@new"].env == "new"
    assert known(records["a@new"].failure).message.endswith("it is not installed")
    assert records["a@old"].status is Status.PASS


def test_stopped_early_there_are_the_rounds_so_far_or_no_record(tmp_path: Path) -> None:
    machine = Machine()
    assert run(machine, tmp_path, stop=lambda: machine.now > 0, job=make(("a",), min_rounds=3)) != {}
    early = Machine()
    assert run(early, tmp_path, stop=lambda: len(early.calls) > 2) == {}


@pytest.mark.parametrize("compilers", [("a",), ("eager", "a")])
def test_one_environment_alone_may_have_a_control(tmp_path: Path, compilers: tuple[str, ...]) -> None:
    candidates = tuple(f"{compiler}@old" for compiler in compilers)
    job = replace(make(compilers), environments=ENVIRONMENTS[:1], candidates=candidates)
    records = run(machine := Machine(), tmp_path, job=job)
    assert {name: record.status for name, record in records.items()} == dict.fromkeys(candidates, Status.PASS)
    assert (("old", "export") in machine.calls) is ("eager" in compilers)  # the control imports
