"""One job through worker sessions, with a fake worker: every candidate ends in exactly one record."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import pytest

from harness.codec import to_json
from harness.schema import BASELINE, STOPPED, WHOLE, Failure, Job, Protocol, Record, Status
from harness.worker.status_page import Activity
from runner.cli.commands import job_command
from runner.engine import JobContext, Pairs, Place
from runner.engine.gate import DeviceGate, Seat
from runner.engine.job_run import JobRun
from runner.engine.worker_process import WorkerLost
from runner.store.invocation import program_facts
from tests.factories import known, make_job, make_parity

Reply = dict[str, Any]


def lost(
    variant: str = "",
    *,
    timed_out: bool = False,
    full: bool = False,
    phase: str = "measure",
    signal: str = "SIGSEGV",
) -> WorkerLost:
    kind = "timeout" if timed_out else signal
    return WorkerLost(
        Failure(kind=kind, message="gone", phase=phase),
        Activity(phase=phase, variant=variant),
        status=Status.OOM if full else Status.TIMEOUT if timed_out else Status.CRASH,
    )


def failed(status: Status, message: str = "no", *, broken: bool = False) -> Reply:
    failure = {"kind": "E", "message": message, "phase": "compile"}
    return {"failed": {"status": status.value, "failure": failure, "broken": broken}}


class Script:
    """Answers like a healthy worker, but for ``faults`` at (session number, call, candidate)."""

    def __init__(self, faults: Mapping[tuple[int, str, str], Reply | WorkerLost] | None = None) -> None:
        self.faults = dict(faults or {})
        self.calls: list[tuple[int, str]] = []
        self.deadlines: list[tuple[str, float, float]] = []
        self.now: Callable[[], float] = lambda: 0.0
        self.sessions = 0
        self.closed = 0
        self.running = ""
        self.recompiling: dict[str, int] = {}
        self.reasons: dict[str, str] = {}
        self.timed: list[tuple[int, tuple[str, ...]]] = []  # rounds, and who is not timed in them

    @contextlib.contextmanager
    def launch(self, job: Job) -> Iterator[Script]:
        self.sessions += 1
        self.job = job
        try:
            yield self
        finally:
            self.closed += 1

    def activity(self) -> Activity:
        return Activity(variant=self.running)

    def call(self, request: Mapping[str, Any], deadline: float) -> Reply:
        name, candidate = request["call"], request.get("candidate", "")
        self.calls.append((self.sessions, f"{name} {candidate}".strip()))
        self.deadlines.append((name, deadline, self.now()))
        fault = self.faults.pop((self.sessions, name, candidate), None)
        if isinstance(fault, WorkerLost):
            raise fault
        if fault is not None:
            return fault
        return {"ok": getattr(self, f"_{name}")(request)}

    def _open(self, request: Mapping[str, Any]) -> Reply:
        batch_size = request["job"]["case"]["batch_size"]
        model = {"parameters": 7, "parameter_bytes": 28, "input_shapes": [], "batch_size": batch_size}
        return {"model": model, "environment": {"torch": "0"}}

    def _prepare(self, request: Mapping[str, Any]) -> Reply:
        return {"status": "pass", "parity": None, "metrics": {"compilation_latency_s": 1.0}, "notes": ["n"]}

    def _warm_up(self, request: Mapping[str, Any]) -> Reply:
        return {"metrics": {"iterations_per_sample": 4}}

    def _measure(self, request: Mapping[str, Any]) -> Reply:
        resting = request.get("resting", [])
        self.timed.append((request["rounds"], tuple(resting)))
        order = [name for name in (*request["candidates"], BASELINE) if name not in resting]
        seconds = {name: 1.0 + i / 10 for i, name in enumerate(sorted(order))}
        timed_round = {"order": order, "seconds": seconds, "minor_faults": dict.fromkeys(order, 0.0)}
        rounds = [timed_round] * request["rounds"]
        return {"rounds": rounds, "recompiled": self.recompiling, "reasons": self.reasons}

    def _preview(self, request: Mapping[str, Any]) -> Reply:
        return self._measure({"candidates": [request["candidate"]], "rounds": request["rounds"]})

    def _finish(self, request: Mapping[str, Any]) -> Reply:
        return {"metrics": {BASELINE: {"peak_memory_bytes": 10}, "a": {"peak_memory_bytes": 5}}}

    def _conclude(self, request: Mapping[str, Any]) -> Reply:
        return {"metrics": {WHOLE: {"flops_per_step": 8}}}


def run(
    script: Script,
    candidates: tuple[str, ...] = ("a", "b", "c"),
    stop: Callable[[], bool] = lambda: False,
    *,
    batch_size: int = 1,
    skip: str = "",
    gate: Seat | None = None,
    device: str = "cpu",
    preview: Callable[[Pairs], object] | None = None,
    **protocol: Any,
) -> list[Record]:
    settings = Protocol(**{"repeat": 6, **protocol})
    job = make_job("m", suite="s", batch_size=batch_size, skip=skip, candidates=candidates, protocol=settings)
    job = replace(job, device=device)
    ticks = iter(range(1_000_000))
    script.now = lambda: float(next(ticks))
    context = JobContext(
        candidates=candidates,
        place=Place(logs={"": "cases/x/output.log"}),
        reproduce=job_command,
        stop=stop,
        preview=preview,
        clock=script.now,
        gate=gate or DeviceGate().seat(),
    )
    records = list(JobRun(job, script.launch, context).run())
    assert script.sessions == script.closed
    return records


def statuses(records: list[Record]) -> dict[str, Status]:
    assert len({r.candidate for r in records}) == len(records)
    return {r.candidate: r.status for r in records}


def test_a_healthy_job() -> None:
    records = run(script := Script())
    # candidates in an order that is drawn: harness.timing.measure.placement
    calls = "open, prepare a, prepare c, prepare b, warm_up, measure, finish, conclude"
    assert ", ".join(name for _, name in script.calls) == calls
    assert statuses(records) == dict.fromkeys("abc", Status.PASS)
    first = records[0]
    samples = known(first.samples)
    assert (samples.iterations_per_sample, samples.round_index) == (4, tuple(range(6)))
    assert (samples.baseline_position[0], samples.candidate_position[0]) == (3, 0)
    assert first.metrics["baseline_peak_memory_bytes"] == 10
    assert first.metrics["candidate_peak_memory_bytes"] == 5
    assert records[1].metrics.get("candidate_peak_memory_bytes") is None
    assert first.environment == {"torch": "0", **program_facts()}
    assert first.rounds_ended == "fixed count"
    assert "--backend=a " in first.reproduce
    assert first.job.candidates == ("a", "b", "c")


def test_inductor_is_timed_before_the_others_are_compiled() -> None:
    seen = list[Pairs]()
    records = run(script := Script(), ("a", "inductor", "b"), preview=seen.append)
    calls = [name for _, name in script.calls]
    assert calls[:5] == ["open", "prepare inductor", "preview inductor", "prepare a", "prepare b"]
    assert [(name, len(times)) for pairs in seen for name, (_, times) in pairs.items()] == [("inductor", 10)]
    assert [len(known(record.samples)) for record in records] == [6, 6, 6]  # these rounds do not count


@pytest.mark.parametrize("candidates", [("inductor",), ("eager", "inductor")])
def test_a_wrong_candidate_and_one_alone_are_not_timed_early(candidates: tuple[str, ...]) -> None:
    script, seen = Script(), list[Pairs]()
    wrong: Reply = {"status": "fail_accuracy", "parity": None, "metrics": {}, "notes": []}
    script.faults = {(1, "prepare", "inductor"): {"ok": wrong}}
    run(script, candidates, preview=seen.append)
    assert not seen


@pytest.mark.parametrize(
    ("fault", "status"), [(failed(Status.FAIL_TO_RUN), Status.PASS), (lost("inductor"), Status.CRASH)]
)
def test_early_rounds_that_fail_make_one_record_at_most(fault: Reply | WorkerLost, status: Status) -> None:
    """What the worker survives comes again in the rounds that count, if it does."""
    script = Script({(1, "preview", "inductor"): fault})
    script.running = "inductor"
    records = run(script, ("a", "inductor", "b"), preview=lambda _: None)
    assert statuses(records) == {"a": Status.PASS, "inductor": status, "b": Status.PASS}


class Noisy(Script):
    """``b`` has times that do not settle."""

    def _measure(self, request: Mapping[str, Any]) -> Reply:
        reply = super()._measure(request)
        for index, timed in enumerate(reply["rounds"]):
            factor = 1 + 0.1 * (-1) ** (index // 2)
            reply["rounds"][index] = timed | {"seconds": {**timed["seconds"], "b": factor}}
        return reply


OPEN: Any = {"repeat": None, "min_rounds": 15, "max_rounds": 45, "max_measure_s": 1e9, "processes": 1}


def test_a_candidate_that_is_done_leaves_the_rounds() -> None:
    a, b = run(script := Noisy(), ("a", "b"), **OPEN)
    assert script.timed[-1][1] == ("a",)
    a_samples, b_samples = known(a.samples), known(b.samples)
    timed_with_a = sum(count for count, resting in script.timed if not resting)
    assert (len(a_samples), len(b_samples)) == (timed_with_a, sum(count for count, _ in script.timed))
    assert a_samples.round_index == b_samples.round_index[:timed_with_a]  # pairs keep these rounds
    assert a.metrics["candidate_peak_memory_bytes"] == 5  # and it is still looked at when the job ends
    assert (a.rounds_ended, b.rounds_ended) == ("precise", "most rounds")


def test_candidates_of_one_compiler_stay_in_the_same_rounds() -> None:
    with_x, plain, _ = run(script := Noisy(), ("b[x=1]", "b", "a"), **OPEN)
    assert {resting for _, resting in script.timed} == {(), ("a",)}
    assert known(with_x.samples).round_index == known(plain.samples).round_index


BROKEN = failed(Status.FAIL_TO_RUN, "gone", broken=True)  # the device


@pytest.mark.parametrize(
    ("call", "fault", "status"),
    [
        ("prepare b", failed(Status.FAIL_TO_RUN, "gone"), Status.FAIL_TO_RUN),
        ("prepare b", lost("b", phase="compile"), Status.CRASH),
        ("prepare b", lost("b", timed_out=True, phase="compile"), Status.TIMEOUT),
        ("warm_up ", lost("b", timed_out=True, phase="warm up"), Status.TIMEOUT),
        ("measure ", lost("b"), Status.CRASH),
        ("measure ", failed(Status.FAIL_TO_RUN, "gone"), Status.FAIL_TO_RUN),
        ("prepare b", BROKEN, Status.FAIL_TO_RUN),
        ("warm_up ", BROKEN, Status.FAIL_TO_RUN),
        ("measure ", BROKEN, Status.FAIL_TO_RUN),
    ],
)
def test_a_fault_costs_its_candidate_alone(call: str, fault: Reply | WorkerLost, status: Status) -> None:
    name, _, candidate = call.partition(" ")
    script = Script({(1, name, candidate): fault})
    script.running = "b"
    records = run(script)
    assert statuses(records) == {"b": status, "a": Status.PASS, "c": Status.PASS}
    failure = known(records[0].failure)
    assert (failure.message, failure.log) == ("gone", "cases/x/output.log")
    assert records[0].samples is None
    assert ("compilation_latency_s" in records[0].metrics) == (name != "prepare")
    fresh = isinstance(fault, WorkerLost) or fault is BROKEN
    assert script.sessions == 1 + fresh
    if fresh:
        assert script.job.candidates == ("a", "c")
        assert records[1].notes[0] == f"measured in a fresh worker after b ended as {status.value}"


@pytest.mark.parametrize(
    ("later", "fault", "status", "kind"),
    [(3, lost(BASELINE), Status.CRASH, "SIGSEGV"), (99, BROKEN, Status.PASS, "E")],
)
def test_alone_after_eager_ended(later: int, fault: Reply | WorkerLost, status: Status, kind: str) -> None:
    script = Script({(1, "measure", ""): fault, (later, "measure", ""): fault})
    script.running = BASELINE
    records = run(script)
    assert (statuses(records), script.sessions) == ({"a": Status.PASS, "b": status, "c": Status.PASS}, 4)
    assert records[0].notes[0] == f"measured alone: with other candidates, eager ended the worker ({kind})"


def test_a_failure_of_eager_is_one_of_every_candidate() -> None:
    script = Script({(1, "open", ""): failed(Status.MODEL_FAIL_TO_LOAD)})
    assert statuses(run(script)) == dict.fromkeys("abc", Status.MODEL_FAIL_TO_LOAD)
    assert statuses(run(Script({(1, "open", ""): lost(phase="build")}))) == dict.fromkeys("abc", Status.CRASH)
    script = Script({(session, "measure", ""): failed(Status.FAIL_TO_RUN) for session in range(1, 5)})
    script.running = BASELINE
    assert (statuses(run(script)), script.sessions) == (dict.fromkeys("abc", Status.EAGER_FAIL_TO_RUN), 4)


def test_each_call_has_its_phases_time_within_the_jobs() -> None:
    script = Script()
    run(script, ("a",), timeout_s=1000.0, phase_timeouts_s={"compile": 30.0, "measure": 5000.0})
    limits = {name: round(deadline - asked) for name, deadline, asked in script.deadlines}
    assert limits["open"] > 900
    assert limits["prepare"] in (29, 30)
    assert limits["measure"] < 1000


@pytest.mark.parametrize(("device", "limit_s"), [("cpu", 1000), ("cuda", 500)])
def test_on_a_device_a_timeout_does_not_give_others_the_whole_time_again(device: str, limit_s: int) -> None:
    fault = lost("b", timed_out=True, phase="compile")
    script = Script({(1, "prepare", name): fault for name in "abc"})
    run(script, timeout_s=1000.0, device=device)
    opened = [round(deadline - asked) for name, deadline, asked in script.deadlines if name == "open"]
    assert opened == [pytest.approx(1000, abs=3), pytest.approx(limit_s, abs=3)]


def test_losing_the_worker_at_the_end_loses_metrics_not_samples() -> None:
    """Who ran then has failed; the others keep their results."""
    script = Script({(1, "finish", ""): lost("a")})
    records = run(script)
    assert statuses(records) == {"a": Status.CRASH, "b": Status.PASS, "c": Status.PASS}
    assert records[0].failure is not None
    assert all(r.samples is not None and len(r.samples) == 6 for r in records)
    assert "no step metrics" in records[0].notes[-1]
    assert records[0].metrics.get("baseline_peak_memory_bytes") is None


def test_who_compiles_during_every_batch_has_no_number_and_the_others_keep_theirs() -> None:
    script = Script()
    script.recompiling = {"b": 1}
    script.reasons = {"b": "forward (model.py:3): \nsteps == 5"}
    records = run(script)
    reason = "the latest reason: forward (model.py:3): \\nsteps == 5"
    assert known(records[0].failure).message.endswith(reason)
    assert statuses(records) == {"b": Status.RECOMPILES, "a": Status.PASS, "c": Status.PASS}
    assert [name for _, name in script.calls].count("measure") == 3
    assert records[0].samples is None
    assert all(r.samples is not None and len(r.samples) >= 6 for r in records[1:])


def test_isolated_workers_and_accuracy_alone() -> None:
    records = run(script := Script(), isolate=True)
    assert (statuses(records), script.sessions) == (dict.fromkeys("abc", Status.PASS), 3)
    assert all("isolated" in r.notes for r in records)
    records = run(script := Script(), performance=False)
    assert not {"warm_up", "measure", "finish"} & {name for _, name in script.calls}
    assert all(r.samples is None and r.status is Status.PASS for r in records)


def test_stopped_in_timed_rounds_keeps_the_rounds_so_far() -> None:
    script = Script()
    records = run(script, stop=lambda: "measure" in {name for _, name in script.calls}, repeat=60)
    assert statuses(records) == dict.fromkeys("abc", Status.PASS)
    assert {len(known(r.samples).baseline_s) for r in records} == {20}  # a batch
    assert {(r.rounds_ended, r.notes[-1]) for r in records} == {(STOPPED, "stopped after 20 rounds")}


# -- memory and skips ------------------------------------------------------------------------
def test_out_of_memory_halves_the_batch_for_eager_and_all_candidates() -> None:
    faults = {(n, "prepare", "b"): failed(Status.OOM) for n in (2, 3)}  # beside others, and alone
    script = Script({(1, "open", ""): failed(Status.EAGER_1ST_RUN_OOM), **faults})
    records = run(script, batch_size=8)
    assert (statuses(records), script.sessions) == (dict.fromkeys("abc", Status.PASS), 5)
    for record in records:
        assert record.job.case.batch_size == 8  # what was asked for: the key that a resumed run looks for
        assert known(record.model).batch_size == 2
        assert "batch 2 instead of 8: not enough memory" in record.notes


@pytest.mark.parametrize(
    "fault", [{(1, "prepare", "b"): failed(Status.OOM)}, {(1, "measure", ""): lost("b", full=True)}]
)
def test_who_ran_out_of_memory_is_tried_alone(fault: dict[tuple[int, str, str], Reply | WorkerLost]) -> None:
    script = Script(fault)
    records = {record.candidate: record for record in run(script, batch_size=8)}
    assert statuses([*records.values()]) == dict.fromkeys("abc", Status.PASS)
    assert (list(records), script.sessions) == (["b", "a", "c"], 3)
    assert records["b"].notes[0] == "measured alone: beside other candidates, it ran out of memory"
    assert records["a"].notes[0] == "measured in a fresh worker after b ended as OOM"
    for record in records.values():
        assert known(record.model).batch_size == 8


@pytest.mark.parametrize("options", [{"batch_size": 2}, {"batch_size": 8, "fixed_batch": True}])
def test_a_batch_of_one_is_not_halved_and_neither_is_a_fixed_one(options: dict[str, Any]) -> None:
    sessions = 2 if "fixed_batch" in options else 4
    script = Script({(n, "prepare", "b"): failed(Status.OOM) for n in range(1, sessions + 1)})
    assert statuses(run(script, **options)) == {"a": Status.PASS, "b": Status.OOM, "c": Status.PASS}


def test_who_failed_before_the_batch_was_halved_is_not_run_again() -> None:
    faults = {(1, "prepare", "a"): failed(Status.FAIL_TO_RUN), (1, "prepare", "b"): failed(Status.OOM)}
    script = Script(faults)
    records = run(script, batch_size=8)
    assert statuses(records) == {"a": Status.FAIL_TO_RUN, "b": Status.PASS, "c": Status.PASS}
    assert (2, "prepare a") not in script.calls


def test_a_skipped_case_starts_no_worker_and_keeps_its_reason() -> None:
    records = run(script := Script(), skip="gone: nobody has it")
    assert (script.sessions, statuses(records)) == (0, dict.fromkeys("abc", Status.SKIP))
    assert {r.failure.message for r in records if r.failure} == {"gone: nobody has it"}
    assert all(r.reproduce.endswith(" --no-skip") for r in records)


# -- candidates that turned wrong late ------------------------------------------------------------
class Late(Script):
    """Some variants do not compute any more what they did when they were checked."""

    def __init__(self, *changed: str) -> None:
        super().__init__()
        self.changed = changed

    def _prepare(self, request: Mapping[str, Any]) -> Reply:
        parity = replace(make_parity(), worst=None)
        status = "fail_accuracy" if request["candidate"] == "c" else "pass"
        return {**super()._prepare(request), "status": status, "parity": to_json(parity)}

    def _finish(self, request: Mapping[str, Any]) -> Reply:
        error = to_json(replace(known(make_parity().worst), name="loss", failure="it differs"))
        return {**super()._finish(request), "changed": dict.fromkeys(self.changed, error)}


def test_a_candidate_that_turned_wrong_during_the_rounds_does_not_pass() -> None:
    records = {record.candidate: record for record in run(Late("a", "c"))}
    assert [records[name].status.value for name in "abc"] == ["fail_accuracy", "pass", "fail_accuracy"]
    parity = known(records["a"].parity)
    assert (parity.failed, known(parity.worst).failure) == (1, "it differs")
    assert records["a"].notes[-1] == "a: results changed during the run: loss: it differs"
    assert records["a"].samples is not None  # it was timed all the same
    assert records["c"].notes == ("n",)  # it had failed before


def test_where_eager_changed_nobody_passes() -> None:
    records = {record.candidate: record for record in run(Late(BASELINE))}
    differ = "eager_two_runs_differ"
    assert [records[name].status.value for name in "abc"] == [differ, differ, "fail_accuracy"]
    assert records["a"].notes[-1] == "eager: results changed during the run: loss: it differs"


def test_a_candidate_whose_last_step_fails_has_failed() -> None:
    class Failing(Late):
        def _finish(self, request: Mapping[str, Any]) -> Reply:
            failure = {"kind": "RuntimeError", "message": "late", "phase": "finish", "log": None}
            return {**super()._finish(request), "late_failures": {"a": failure, "c": failure}}

    records = {record.candidate: record for record in run(Failing())}
    assert [records[name].status.value for name in "abc"] == ["fail_to_run", "pass", "fail_accuracy"]
    failure = known(records["a"].failure)
    assert (failure.phase, failure.message) == ("finish", "late")
    assert records["a"].samples is not None
    assert records["c"].failure is None  # it had failed before
