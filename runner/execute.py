"""Drives one job through worker sessions until every candidate has its record.

A candidate that fails costs itself only: an exception is recorded and the
session goes on without it; a crash or hang is recorded and the others get a
fresh worker.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timezone
from typing import Protocol

from harness.codec import from_json
from harness.schema import (
    BASELINE,
    WHOLE,
    Failure,
    Job,
    ModelFacts,
    Parity,
    Record,
    Round,
    Scalar,
    Status,
    TensorError,
)
from runner.calls import Calls, CandidateFailed, Launch
from runner.commands import job_command
from runner.labels import plain
from runner.pairs import CandidateState, judge_late, paired_samples, pairs_of, take_first_calls
from runner.stopping import Decision, decide
from runner.worker_process import WorkerLost

MAX_RECOMPILING_BATCHES = 3
LONGEST_REASON = 400  # characters of torch's own words
SHARE_OF_TIMEOUT = 0.5  # what a time budget may make of a job's time for its rounds
ISOLATED = ("isolated",)


class Watcher(Protocol):
    """Who wants to know how the job goes."""

    def rounds(self, done: int, pairs: Mapping[str, tuple[list[float], list[float]]]) -> None: ...


class _TooLarge(Exception):
    """This batch does not fit into the memory that is there."""


class _BaselineLost(Exception):
    """Eager failed while it was timed beside several candidates, of which any may be to blame."""


class JobRun:
    """The run of one job, or of those of its ``candidates`` that are still missing.

    ``run()`` gives the records as they become final. ``stop()`` answers whether the
    person wants to end after the current rounds; ``allowance(timed)``, how many seconds this
    job may be timed in all where a time budget says so.
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
        allowance: Callable[[float], float] | None = None,
    ) -> None:
        self._job = job
        self._launch = launch
        self._watcher = watcher
        self._candidates = candidates
        self._log = log
        self._stop = stop
        self._clock = clock
        self._allowance = allowance
        self._batch_size = job.case.batch_size
        self._started = _now()
        self._model: ModelFacts | None = None
        self._environment: dict[str, Scalar] = {}

    def run(self) -> Iterator[Record]:
        """Exactly one record per candidate, unless the run is stopped before there is a number."""
        yield from self._not_run()
        able = tuple(c for c in self._candidates if self._why_not_run(c) is None)
        alone = self._job.protocol.isolate
        groups = deque([((c,), ISOLATED) for c in able] if alone else [(able, ())] if able else [])
        while groups and not self._stop():
            group, notes = groups.popleft()
            finished: list[Record] = []
            try:
                for record in self._session(group, (*self._halved(), *notes)):
                    if self._may_halve(record):
                        raise _TooLarge  # noqa: TRY301 - ends the worker; the next has half the batch
                    finished.append(record)
                    yield record
            except _TooLarge:
                self._batch_size = (self._batch_size or 1) // 2
                groups.appendleft((_without(group, finished), notes))
                continue
            except _BaselineLost as lost:
                apart = (f"measured alone: beside others, eager {lost}",)
                groups.extendleft([((c,), apart) for c in reversed(_without(group, finished))])
                continue
            if not finished:
                return  # stopped
            if rest := _without(group, finished):
                ended = finished[-1]
                why = f"measured in a fresh worker after {ended.candidate} ended as {ended.status.value}"
                groups.appendleft((rest, (why,)))

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
            calls = Calls(worker, job, self._clock)
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

    def _open(self, calls: Calls) -> None:
        reply = calls("open")
        self._model = from_json(ModelFacts, reply["model"])
        self._environment = reply["environment"]

    def _prepare(self, calls: Calls, candidate: str, notes: tuple[str, ...]) -> CandidateState:
        reply = calls("prepare", candidate=candidate)
        parity = reply["parity"]
        return CandidateState(
            status=Status(reply["status"]),
            parity=from_json(Parity, parity) if parity is not None else None,
            metrics=dict(reply["metrics"]),
            notes=(*notes, *reply["notes"]),
            first_calls_s=tuple(reply.get("first_calls_s", ())),
        )

    def _timed(self, calls: Calls, states: dict[str, CandidateState]) -> Iterator[Record]:
        """Warm-up, rounds and step metrics; takes out of ``states`` whoever fails on the way."""
        warmed: dict[str, Scalar] = {}
        began = 0.0
        while states:
            try:
                if not warmed:
                    reply = calls("warm_up", candidates=list(states))
                    take_first_calls(states, reply)
                    warmed = reply["metrics"]
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
                running = calls.running()
                blamed = self._blame(running, states, "failed in timed rounds")
                eager = running not in states and not failed.status.out_of_memory
                state = states.pop(blamed)
                status = Status.EAGER_FAIL_TO_RUN if eager else failed.status
                yield self._failed(blamed, status, failed.failure, state.notes, state)
                continue
            except WorkerLost as lost:
                blamed = self._blame(lost.activity.variant, states, f"ended the worker ({lost.failure.kind})")
                yield self._lost(blamed, lost, states[blamed].notes, states[blamed])
                states.clear()  # the others are measured again in a fresh worker
                return
            rounds = [from_json(Round, one) for one in reply["rounds"]]
            yield from self._take(states, rounds, reply["recompiled"], reply.get("reasons", {}))
            self._watcher.rounds(self._least_rounds(states), self._pairs(states))
        if states:
            self._finish(calls, states, warmed)

    def _next(self, states: Mapping[str, CandidateState], elapsed_s: float) -> Decision:
        allowed = None
        if self._allowance is not None:  # and not so long that --timeout ends the worker
            allowed = min(self._allowance(elapsed_s), SHARE_OF_TIMEOUT * self._job.protocol.timeout_s)
        return decide(self._job.protocol, self._pairs(states), elapsed_s, allowed)

    def _pairs(self, states: Mapping[str, CandidateState]) -> dict[str, tuple[list[float], list[float]]]:
        return pairs_of(states)

    def _take(
        self,
        states: dict[str, CandidateState],
        rounds: Sequence[Round],
        recompiled: Mapping[str, int],
        reasons: Mapping[str, str] | None = None,
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
                why = plain((reasons or {}).get(candidate, ""))[:LONGEST_REASON]
                message = (
                    f"{candidate} compiled again during {MAX_RECOMPILING_BATCHES} batches of timed rounds; "
                    + (f"the latest reason: {why}" if why else "look for what changes from step to step")
                )
                failure = Failure(kind="Recompiles", message=message, phase="measure")
                yield self._failed(candidate, Status.RECOMPILES, failure, state.notes, state)

    def _finish(self, calls: Calls, states: dict[str, CandidateState], warmed: dict[str, Scalar]) -> None:
        """Metrics of a step of each side. Losing the worker here loses metrics, not samples."""
        found: dict[str, dict[str, Scalar]] = {}
        try:
            for call in ("finish", "conclude"):
                reply = calls(call)
                changed = {name: from_json(TensorError, e) for name, e in reply.get("changed", {}).items()}
                judge_late(states, changed)
                for name, numbers in reply["metrics"].items():
                    found.setdefault(name, {}).update(numbers)
        except (CandidateFailed, WorkerLost) as error:
            what = "some metrics are missing" if found else "no step metrics"
            for state in states.values():
                state.notes += (f"{what}: {error}",)
        for candidate, state in states.items():
            state.metrics.update(warmed)
            for side, name in (("baseline_", BASELINE), ("candidate_", candidate), ("", WHOLE)):
                for metric, value in found.get(name, {}).items():
                    state.metrics[f"{side}{metric}"] = value

    @staticmethod
    def _blame(running: str, states: Mapping[str, CandidateState], what: str) -> str:
        """The candidate that was running, or the only one there is.

        When it was eager, beside several, each of them is measured alone: one of them may
        have damaged the process that they shared. ``_BaselineLost`` then.
        """
        if running in states:
            return running
        if len(states) > 1:
            raise _BaselineLost(what)
        return next(iter(states))

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
        return replace(with_facts(record, state), samples=samples)

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
        return record if state is None else with_facts(record, state)

    def _why_not_run(self, candidate: str) -> str | None:
        return self._job.case.skip or self._job.unavailable.get(candidate)

    def _not_run(self) -> Iterator[Record]:
        """Records of the candidates that are skipped, each with its reason."""
        unless = " --no-skip" if self._job.case.skip else ""
        for candidate in self._candidates:
            why = self._why_not_run(candidate)
            if why is not None:
                failure = Failure(kind="skipped", message=why, phase="plan")
                record = self._record(candidate, Status.SKIP, ())
                yield replace(record, failure=failure, reproduce=f"{record.reproduce}{unless}")

    def _lost(
        self,
        candidate: str,
        lost: WorkerLost,
        notes: tuple[str, ...],
        state: CandidateState | None = None,
    ) -> Record:
        return self._failed(candidate, lost.status, lost.failure, notes, state)


def with_facts(record: Record, state: CandidateState) -> Record:
    """The record with what is known of the candidate before any round."""
    return replace(record, parity=state.parity, metrics=state.metrics, first_calls_s=state.first_calls_s)


def _without(group: tuple[str, ...], finished: Sequence[Record]) -> tuple[str, ...]:
    done = {record.candidate for record in finished}
    return tuple(candidate for candidate in group if candidate not in done)


def _now() -> str:
    return datetime.now(timezone.utc).isoformat(timespec="milliseconds")
