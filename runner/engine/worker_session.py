"""The parent's view of one worker's session: its part of the job, and calls with deadlines."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Protocol, TypeVar

from harness.codec import from_json, to_json
from harness.schema import (
    BASELINE,
    Environment,
    Failure,
    Job,
    Numerics,
    Parity,
    Round,
    Samples,
    Scalar,
    Status,
    TensorError,
    Trajectory,
    Where,
    of_environment,
)
from harness.worker.status_page import Activity
from runner.engine.replies import Checked, Failed, Finished, Measured, Opened, Ran, WarmedUp, invalid
from runner.engine.worker_process import WorkerLost
from runner.names import plain
from runner.plan.environments.spec import EAGER, split_candidate

PHASE_OF = {**dict.fromkeys(("open", "export", "cross_parity"), "build"), "prepare": "compile"}
"""The phase of ``--phase-timeout`` that limits each call; every other call: measure."""

T = TypeVar("T")


class Worker(Protocol):
    """What a job needs from a worker. The implementation is in ``runner.engine.worker_process``."""

    def call(self, request: Mapping[str, Any], deadline: float) -> dict[str, Any]: ...

    def activity(self) -> Activity: ...


Launch = Callable[[Job], AbstractContextManager[Worker]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """The part of a job that one worker measures: eager and some compilers, in one environment.

    ``eager`` is eager's name in rounds. In the reference environment (or the only environment) it is the
    baseline, elsewhere the name of a candidate. ``compilers`` maps each compiler to its candidate's name.
    """

    environment: Environment | None
    eager: str
    compilers: dict[str, str]

    @property
    def is_reference(self) -> bool:
        return self.eager == BASELINE

    @property
    def name(self) -> str:
        """The environment's name; "" for the runner's own environment."""
        return "" if self.environment is None else self.environment.name

    def of(self, job: Job) -> Job:
        """The job as it is sent to the worker."""
        sent = replace(job, candidates=tuple(self.compilers))
        if self.environment is None:
            return sent
        return replace(sent, environments=(self.environment,), unavailable={})


def parts_of(job: Job, candidates: Sequence[str]) -> list[Part]:
    """The parts that these candidates need. The reference environment's part is always there, and first.

    If the reference environment's eager is itself a candidate, it runs in a second process: the A/A control.
    In a start-up race, eager is prepared as compilers are.
    """
    if not job.environments:
        return [Part(environment=None, eager=BASELINE, compilers={name: name for name in candidates})]
    first = job.environments[0]
    reference = Part(environment=first, eager=BASELINE, compilers={})
    control: list[Part] = []
    others: dict[str, Part] = {}
    for candidate in candidates:
        compiler, environment = split_candidate(job, candidate)
        is_eager = compiler == EAGER and not job.protocol.start
        if environment.name == first.name and is_eager:
            control.append(Part(environment=environment, eager=candidate, compilers={}))
            continue
        part = reference
        if environment.name != first.name:
            eager = of_environment(EAGER, environment.name)
            new = Part(environment=environment, eager=eager, compilers={})
            part = others.setdefault(environment.name, new)
        if not is_eager:
            part.compilers[compiler] = candidate
    return [reference, *control, *others.values()]


@dataclass(slots=True, kw_only=True)
class CandidateState:
    """The results of one candidate in the current session, so far."""

    status: Status
    parity: Parity | None = None
    numerics: Numerics | None = None
    metrics: dict[str, Scalar] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    first_calls_s: tuple[float, ...] = ()
    rounds: list[Round] = field(default_factory=list)
    measured_again: bool = False  # its first rounds had no common speedup, and were discarded
    recompiling: int = 0  # batches during which the candidate was compiled again
    samples: Samples | None = None
    trajectory: Trajectory | None = None
    rounds_ended: str = ""  # why timing stopped: a reason of ``runner.engine.stopping``; "": it goes on
    failure: Failure | None = None


class CallFailed(Exception):
    """A call failed. ``lost``: the worker ended, too, or ends. ``running`` is the variant that ran."""

    def __init__(
        self, session: WorkerSession, status: Status, failure: Failure, *, running: str, lost: bool
    ) -> None:
        super().__init__(failure.message)
        self.session = session
        self.status = status
        self.failure = failure
        self.running = running
        self.lost = lost

    @property
    def of_eager(self) -> bool:
        """Whether eager itself failed, for another reason than memory."""
        return not self.lost and self.running not in self.session.compilers and not self.status.out_of_memory


class WorkerSession:
    """Calls to one worker. All calls together take ``timeout_s`` at most, each call its phase's limit.

    Every call raises ``CallFailed`` if it fails or the worker is lost. ``compilers`` are the compilers
    that are still measured, each with its candidate's name in the job.
    """

    def __init__(
        self, part: Part, worker: Worker, job: Job, clock: Callable[[], float], timeout_s: float
    ) -> None:
        self.part = part
        self.compilers = dict(part.compilers)
        self.warmed: dict[str, Scalar] | None = None
        self._worker = worker
        self._limits = job.protocol.phase_timeouts_s
        self._job: Any = to_json(job)
        self._clock = clock
        self._timeout_s = timeout_s
        self._deadline = clock() + timeout_s

    def extend(self, seconds: float) -> None:
        """Adds the time that the session has waited for other jobs to its time limit."""
        self._deadline += seconds

    def open(self, imported: Path | None = None, first_data_only: str = "") -> Opened:
        """Builds the model. ``imported`` is the file that the reference's session exported.

        ``first_data_only``: why parity is not checked on other data ("": it is).
        """
        given = {"imported": str(imported)} if imported is not None else {}
        given |= {"first_data_only": first_data_only} if first_data_only else {}
        return self._call("open", partial(from_json, Opened), **given)

    def export(self, path: Path) -> None:
        """Writes the weights, the inputs and eager's results."""
        self._call("export", dict, path=str(path))

    def cross_parity(self, notes: tuple[str, ...]) -> CandidateState:
        """Compares eager's results with those in the imported file."""
        return self._checked("cross_parity", notes)

    def prepare(self, compiler: str, notes: tuple[str, ...], figures: Path | None = None) -> CandidateState:
        """Compiles and checks. Drops the compiler from ``compilers`` if the call fails.

        ``figures``: the file for the table of the check.
        """
        given = {"figures": str(figures.resolve())} if figures is not None else {}
        try:
            return self._checked("prepare", notes, candidate=compiler, **given)
        except CallFailed:
            del self.compilers[compiler]
            raise

    def _checked(self, call: str, notes: tuple[str, ...], **given: str) -> CandidateState:
        checked = self._call(call, partial(from_json, Checked), **given)
        return CandidateState(
            status=checked.status,
            parity=checked.parity,
            numerics=checked.numerics,
            metrics=dict(checked.metrics),
            notes=(*notes, *checked.notes),
            first_calls_s=checked.first_calls_s,
        )

    def warm_up(self, states: Mapping[str, CandidateState]) -> None:
        """Runs the warm-up. Sets ``warmed``, and the first calls and compilation latency of ``states``."""
        warmed = self._call("warm_up", partial(from_json, WarmedUp), candidates=list(self.compilers))
        for compiler, candidate in self.compilers.items():
            state = states[candidate]
            state.first_calls_s = warmed.first_calls_s.get(compiler, state.first_calls_s)
            if compiler in warmed.compilation_latency_s:
                state.metrics["compilation_latency_s"] = warmed.compilation_latency_s[compiler]
        self.warmed = warmed.metrics

    def preview(self, compiler: str, rounds: int) -> Measured:
        """Rounds of eager and this compiler, which do not count, before the others are prepared."""
        read = partial(self._renamed, resting=self.compilers.keys() - {compiler})
        return self._call("preview", read, candidate=compiler, rounds=rounds)

    def measure(self, resting: Collection[str] = (), **how: Any) -> Measured:
        """Times up to ``rounds`` rounds, of which none begins after ``within_s`` seconds.

        ``resting``: compilers that have enough rounds, and are not timed.
        With ``iterations``: one round of so many steps per sample, between the rounds of other sessions.
        """
        read = partial(self._renamed, resting=resting)
        return self._call("measure", read, candidates=list(self.compilers), resting=list(resting), **how)

    def _renamed(self, reply: Any, resting: Collection[str]) -> Measured:
        """With the job's names for the variants."""
        measured = from_json(Measured, reply)
        measured.check({BASELINE, *self.compilers} - set(resting))
        names = {**self.part.compilers, BASELINE: self.part.eager}
        # a turn starts with an untimed sample: compilations that it reports for eager were not timed
        compiled = [name for name in self.compilers if name in measured.recompiled]
        return Measured(
            rounds=tuple(_with_names(timed, names) for timed in measured.rounds),
            recompiled={names[name]: measured.recompiled[name] for name in compiled},
            reasons={names[name]: measured.reasons[name] for name in compiled if name in measured.reasons},
        )

    def finish(
        self, states: Mapping[str, CandidateState], *, soon: bool = False
    ) -> dict[str, dict[str, Scalar]]:
        """Metrics by variant, after the drift check. ``soon``: without those that need many steps.

        A candidate that fails here, or that ran when the worker was lost, has failed; its samples are kept.
        """
        metrics: dict[str, dict[str, Scalar]] = {}
        try:
            for call in ("finish", "conclude"):
                finished = self._call(call, partial(from_json, Finished), **({"soon": True} if soon else {}))
                judge_drift(states, finished.changed)
                for name, failure in finished.late_failures.items():
                    fail_late(states, name, Status.FAIL_TO_RUN, failure)
                for name, numbers in finished.metrics.items():
                    metrics.setdefault(name, {}).update(numbers)
        except CallFailed as failed:
            what = "some metrics are missing" if metrics else "no step metrics"
            for state in states.values():
                state.notes += (f"{what}: {failed}",)
            variant = failed.running if failed.running in self.compilers else ""
            fail_late(states, variant, failed.status, failed.failure)
        return metrics

    def trajectory(self, run: str, repeat: int = 0) -> Ran:
        """A training run of a compiler or of eager. Each has the time limit of a worker for itself."""
        self._deadline = self._clock() + self._timeout_s
        return self._call("trajectory", partial(from_json, Ran), run=run, repeat=repeat)

    def localize(self, compiler: str, folder: Path | None) -> Where:
        """Where the compiler goes wrong. Call it instead of ``open``. Writes a script into ``folder``."""
        given = {"folder": str(folder.resolve())} if folder is not None else {}
        return self._call("localize", partial(from_json, Where), candidate=compiler, **given)

    def _call(self, name: str, read: Callable[[Any], T], **arguments: Any) -> T:
        """What ``read`` makes of the reply. A reply that it cannot read costs the worker."""
        limit = self._limits.get(PHASE_OF.get(name, "measure"))
        deadline = self._deadline if limit is None else min(self._deadline, self._clock() + limit)
        try:
            reply = self._worker.call({"call": name, "job": self._job, **arguments}, deadline)
        except WorkerLost as lost:
            running = lost.activity.variant
            raise CallFailed(self, lost.status, lost.failure, running=running, lost=True) from lost
        self._job = None  # the worker keeps it: later calls do not send it
        running = self._worker.activity().variant
        try:
            failed = from_json(Failed, reply["failed"]) if "failed" in reply else None
            if failed is None:
                return read(reply["ok"] or {})
        except Exception as error:  # a model can write anything
            failure = invalid(error, plain(self._worker.activity().phase))
            raise CallFailed(self, Status.CRASH, failure, running=running, lost=True) from None
        raise CallFailed(self, failed.status, failed.failure, running=running, lost=failed.broken)


def _with_names(timed: Round, names: Mapping[str, str]) -> Round:
    columns = (timed.seconds, timed.minor_faults, timed.prefill_s)
    seconds, faults, prefill = ({names[v]: value for v, value in column.items()} for column in columns)
    order = tuple(names[variant] for variant in timed.order)
    return replace(timed, order=order, seconds=seconds, minor_faults=faults, prefill_s=prefill)


def fail_late(states: Mapping[str, CandidateState], candidate: str, status: Status, failure: Failure) -> None:
    """A candidate that passed, but fails in a step after the timed rounds, has not passed."""
    state = states.get(candidate)
    if state is not None and (state.status.passed or state.status is Status.APPROXIMATE):
        state.status, state.failure = status, failure
    elif candidate == BASELINE:
        for other in states.values():
            other.notes += (f"eager fails after the timed rounds: {failure.message}",)


def judge_drift(states: Mapping[str, CandidateState], changed: Mapping[str, TensorError]) -> None:
    """Applies the drift check: a candidate whose results changed no longer passes.

    If eager's results changed, no candidate passes, because there is no stable reference.
    ``changed`` maps each variant whose results changed to its worst tensor.
    """
    for candidate, state in states.items():
        error = changed.get(BASELINE) or changed.get(candidate)
        if error is None or not state.status.passed or state.parity is None:
            continue
        drifts = BASELINE in changed
        state.status = Status.EAGER_TWO_RUNS_DIFFER if drifts else Status.FAIL_ACCURACY
        changed_one = "eager" if drifts else candidate
        state.notes += (f"{changed_one}: results changed during the run: {error.name}: {error.failure}",)
        if not drifts:
            state.parity = replace(state.parity, failed=1, worst=error)
