"""Drives one job through worker sessions until every candidate has its record.

A candidate that fails costs itself only: an exception is recorded and the
session goes on without it; a crash or hang is recorded and the others get a
fresh worker.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from typing import Any, Protocol

from harness.codec import from_json, to_json
from harness.schema import BASELINE, Failure, Job, ModelFacts, Parity, Record, Round, Samples, Scalar, Status
from harness.status_page import Activity
from runner.commands import job_command
from runner.stopping import Decision, decide
from runner.worker_process import WorkerLost

MAX_RECOMPILING_BATCHES = 3


class Worker(Protocol):
    """What a job needs of a worker: ``runner.worker_process`` has the real one, tests a fake."""

    def call(self, request: Mapping[str, Any], deadline: float) -> dict[str, Any]: ...

    def activity(self) -> Activity: ...


Launch = Callable[[Job], AbstractContextManager[Worker]]


class Watcher(Protocol):
    """Who wants to know how the job goes."""

    def rounds(self, done: int, pairs: Mapping[str, tuple[list[float], list[float]]]) -> None: ...


@dataclass(slots=True)
class CandidateState:
    """What is known so far of one candidate in the current session."""

    status: Status
    parity: Parity | None
    metrics: dict[str, Scalar]
    notes: tuple[str, ...]
    rounds: list[Round] = field(default_factory=list)
    recompiling: int = 0


class _TooLarge(Exception):
    """This batch does not fit into the memory that is there."""


class CandidateFailed(Exception):
    """A call came back as failed."""

    def __init__(self, status: Status, failure: Failure) -> None:
        super().__init__(failure.message)
        self.status = status
        self.failure = failure


class JobRun:
    """The run of one job, or of those of its ``candidates`` that are still missing.

    ``run()`` gives the records as they become final. ``stop()`` answers whether the
    person wants to end after the current rounds.
    """

    def __init__(
        self,
        job: Job,
        launch: Launch,
        watcher: Watcher,
        *,
        candidates: tuple[str, ...],
        log: str,
        stop: Callable[[], bool] = lambda: False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._job = job
        self._launch = launch
        self._watcher = watcher
        self._candidates = candidates
        self._log = log
        self._stop = stop
        self._clock = clock
        self._batch_size = job.case.batch_size
        self._started = _now()
        self._model: ModelFacts | None = None
        self._environment: dict[str, Scalar] = {}

    def run(self) -> Iterator[Record]:
        """Exactly one record per candidate, unless the run is stopped before there is a number."""
        if self._job.case.skip:
            yield from (self._skipped(candidate) for candidate in self._candidates)
            return
        isolate = self._job.protocol.isolate
        groups = [(c,) for c in self._candidates] if isolate else [self._candidates]
        for group in groups:
            remaining, notes = group, (("isolated",) if isolate else ())
            while remaining and not self._stop():
                finished = []
                try:
                    for record in self._session(remaining, (*self._halved(), *notes)):
                        if self._may_halve(record):
                            raise _TooLarge  # noqa: TRY301 - ends the worker; the next has half the batch
                        finished.append(record)
                        yield record
                except _TooLarge:
                    self._batch_size = (self._batch_size or 1) // 2
                    remaining = tuple(c for c in remaining if c not in {r.candidate for r in finished})
                    continue
                if not finished:
                    return  # stopped
                remaining = tuple(c for c in remaining if c not in {r.candidate for r in finished})
                ended = finished[-1]
                notes = (f"measured in a fresh worker after {ended.candidate} ended as {ended.status.value}",)

    # -- memory -------------------------------------------------------------

    def _may_halve(self, record: Record) -> bool:
        """Whether a smaller batch, for eager and all candidates alike, may give this record a number."""
        smaller = self._batch_size is not None and self._batch_size > 1
        return record.status.out_of_memory and smaller and not self._job.protocol.fixed_batch

    def _halved(self) -> tuple[str, ...]:
        asked = self._job.case.batch_size
        if self._batch_size == asked:
            return ()
        return (f"batch {self._batch_size} instead of {asked}, for want of memory",)

    # -- one worker session -------------------------------------------------

    def _session(self, candidates: tuple[str, ...], notes: tuple[str, ...]) -> Iterator[Record]:
        """Records of one worker's life. When it is lost, the last record is the one to blame."""
        case = replace(self._job.case, batch_size=self._batch_size)
        job = replace(self._job, case=case, candidates=candidates)
        states: dict[str, CandidateState] = {}
        with self._launch(job) as worker:
            calls = _Calls(worker, job, self._clock() + job.protocol.timeout_s)
            try:
                self._open(calls)
            except CandidateFailed as failed:
                yield from (self._failed(c, failed.status, failed.failure, notes) for c in candidates)
                return
            except WorkerLost as lost:
                yield from (self._lost(c, lost, notes) for c in candidates)
                return
            for candidate in candidates:
                try:
                    states[candidate] = self._prepare(calls, candidate, notes)
                except CandidateFailed as failed:
                    yield self._failed(candidate, failed.status, failed.failure, notes)
                except WorkerLost as lost:
                    yield self._lost(candidate, lost, notes)
                    return
                if self._stop():
                    return
            if job.protocol.performance and states:
                yield from self._timed(calls, states)
            for candidate, state in states.items():
                yield self._done(candidate, state)

    def _open(self, calls: _Calls) -> None:
        reply = calls("open")
        self._model = from_json(ModelFacts, reply["model"])
        self._environment = reply["environment"]

    def _prepare(self, calls: _Calls, candidate: str, notes: tuple[str, ...]) -> CandidateState:
        reply = calls("prepare", candidate=candidate)
        parity = reply["parity"]
        return CandidateState(
            status=Status(reply["status"]),
            parity=from_json(Parity, parity) if parity is not None else None,
            metrics=dict(reply["metrics"]),
            notes=(*notes, *reply["notes"]),
        )

    def _timed(self, calls: _Calls, states: dict[str, CandidateState]) -> Iterator[Record]:
        """Warm-up, rounds and step metrics; takes out of ``states`` whoever fails on the way."""
        warmed: dict[str, Scalar] = {}
        began = 0.0
        while states:
            try:
                if not warmed:
                    warmed = calls("warm_up", candidates=list(states))["metrics"]
                    began = self._clock()
                decision = self._next(states, self._clock() - began)
                if decision.rounds == 0 or (self._stop() and self._least_rounds(states) > 0):
                    break
                reply = calls(
                    "measure",
                    rounds=decision.rounds,
                    within_s=decision.within_s,
                    candidates=list(states),
                )
            except CandidateFailed as failed:
                blamed = self._blame(calls.running(), states)
                eager = len(blamed) > 1 or calls.running() == BASELINE
                status = Status.EAGER_FAIL_TO_RUN if eager else failed.status
                for candidate in blamed:
                    yield self._failed(candidate, status, failed.failure, states.pop(candidate).notes)
                continue
            except WorkerLost as lost:
                for candidate in self._blame(lost.activity.variant, states):
                    yield self._lost(candidate, lost, states[candidate].notes)
                states.clear()  # the others are measured again in a fresh worker
                return
            rounds = [from_json(Round, one) for one in reply["rounds"]]
            yield from self._take(states, rounds, reply["recompiled"])
            self._watcher.rounds(self._least_rounds(states), _pairs(states))
        if states:
            self._finish(calls, states, warmed)

    def _next(self, states: Mapping[str, CandidateState], elapsed_s: float) -> Decision:
        return decide(self._job.protocol, _pairs(states), elapsed_s)

    def _take(
        self, states: dict[str, CandidateState], rounds: Sequence[Round], recompiled: Mapping[str, int]
    ) -> Iterator[Record]:
        """Adds a batch to every candidate that did not compile during it."""
        for candidate, state in list(states.items()):
            if candidate not in recompiled:
                state.rounds += rounds
                continue
            state.recompiling += 1
            state.rounds.clear()
            if state.recompiling >= MAX_RECOMPILING_BATCHES:
                del states[candidate]
                message = (
                    f"{candidate} compiled again during {MAX_RECOMPILING_BATCHES} batches of timed rounds; "
                    "look for shapes or values that change from step to step"
                )
                failure = Failure(kind="Recompiles", message=message, phase="measure")
                yield self._failed(candidate, Status.RECOMPILES, failure, state.notes, state)

    def _finish(self, calls: _Calls, states: dict[str, CandidateState], warmed: dict[str, Scalar]) -> None:
        """Metrics of a step of each side. Losing the worker here loses metrics, not samples."""
        try:
            found = calls("finish")["metrics"]
        except (CandidateFailed, WorkerLost) as error:
            found = {}
            for state in states.values():
                state.notes += (f"no step metrics: {error}",)
        for candidate, state in states.items():
            state.metrics.update(warmed)
            for side, name in (("baseline", BASELINE), ("candidate", candidate)):
                for metric, value in found.get(name, {}).items():
                    state.metrics[f"{side}_{metric}"] = value

    @staticmethod
    def _blame(running: str, states: Mapping[str, CandidateState]) -> tuple[str, ...]:
        """The candidate that was running; everyone when it was the baseline, for nobody has a pair then."""
        return (running,) if running in states else tuple(states)

    @staticmethod
    def _least_rounds(states: Mapping[str, CandidateState]) -> int:
        return min((len(state.rounds) for state in states.values()), default=0)

    # -- records ------------------------------------------------------------

    def _record(self, candidate: str, status: Status, notes: tuple[str, ...]) -> Record:
        return Record(
            job=self._job,
            candidate=candidate,
            status=status,
            model=self._model,
            environment=self._environment,
            reproduce=job_command(self._job, (candidate,)),
            notes=notes,
            started=self._started,
            ended=_now(),
        )

    def _done(self, candidate: str, state: CandidateState) -> Record:
        iterations = state.metrics.get("iterations_per_sample")
        samples = None
        if state.rounds:
            samples = paired_samples(candidate, state.rounds, int(iterations or 1))
        record = self._record(candidate, state.status, state.notes)
        return replace(record, parity=state.parity, samples=samples, metrics=state.metrics)

    def _failed(
        self,
        candidate: str,
        status: Status,
        failure: Failure,
        notes: tuple[str, ...],
        state: CandidateState | None = None,
    ) -> Record:
        record = replace(
            self._record(candidate, status, notes), failure=replace(failure, log=failure.log or self._log)
        )
        return record if state is None else replace(record, parity=state.parity, metrics=state.metrics)

    def _skipped(self, candidate: str) -> Record:
        failure = Failure(kind="skipped", message=self._job.case.skip, phase="plan")
        record = self._record(candidate, Status.SKIP, ())
        return replace(record, failure=failure, reproduce=f"{record.reproduce} --no-skip")

    def _lost(self, candidate: str, lost: WorkerLost, notes: tuple[str, ...]) -> Record:
        status = Status.TIMEOUT if lost.timed_out else Status.CRASH
        return self._failed(candidate, status, lost.failure, notes)


class _Calls:
    """Calls to one worker under one deadline, with failures as exceptions."""

    def __init__(self, worker: Worker, job: Job, deadline: float) -> None:
        self._worker = worker
        self._job: Any = to_json(job)
        self._deadline = deadline

    def __call__(self, name: str, **arguments: Any) -> dict[str, Any]:
        reply = self._worker.call({"call": name, "job": self._job, **arguments}, self._deadline)
        self._job = None  # the worker has it now
        if "failed" in reply:
            failed = reply["failed"]
            raise CandidateFailed(Status(failed["status"]), from_json(Failure, failed["failure"]))
        return dict(reply["ok"])

    def running(self) -> str:
        """The variant that the worker said it was running last."""
        return self._worker.activity().variant


def paired_samples(candidate: str, rounds: Sequence[Round], iterations: int) -> Samples:
    """The candidate's samples beside the baseline's, round by round."""
    return Samples(
        baseline_s=tuple(r.seconds[BASELINE] for r in rounds),
        candidate_s=tuple(r.seconds[candidate] for r in rounds),
        baseline_position=tuple(r.order.index(BASELINE) for r in rounds),
        candidate_position=tuple(r.order.index(candidate) for r in rounds),
        baseline_minor_faults=tuple(r.minor_faults[BASELINE] for r in rounds),
        candidate_minor_faults=tuple(r.minor_faults[candidate] for r in rounds),
        iterations_per_sample=iterations,
        baseline_prefill_s=tuple(r.prefill_s[BASELINE] for r in rounds if r.prefill_s),
        candidate_prefill_s=tuple(r.prefill_s[candidate] for r in rounds if r.prefill_s),
    )


def _pairs(states: Mapping[str, CandidateState]) -> dict[str, tuple[list[float], list[float]]]:
    return {
        candidate: (
            [r.seconds[BASELINE] for r in state.rounds],
            [r.seconds[candidate] for r in state.rounds],
        )
        for candidate, state in states.items()
    }


def _now() -> str:
    return datetime.now(timezone.utc).isoformat(timespec="milliseconds")
