"""Drives one job through its workers until every candidate has its record.

A job of several environments has a worker for each, all open at once. A candidate that fails does
not affect the others: after an exception, the session continues without it; after a crash or a
hang, the others get fresh workers.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from pathlib import Path

from harness.schema import BASELINE, Failure, Job, ModelFacts, Parity, Record, Scalar, Status, Where
from harness.timing.measure import placement
from runner.analysis.measuring_ended import STOPPED
from runner.analysis.verdicts.between import ASSUMED_ACROSS
from runner.analysis.verdicts.family import assumed_in
from runner.engine import Gate, Place, Ungated, Watcher
from runner.engine.exchange import Exchange, exchange_in
from runner.engine.pairs import Rounds
from runner.engine.stopping import Decision, decide
from runner.engine.worker_session import (
    Batch,
    CallFailed,
    CandidateState,
    Launch,
    Part,
    WorkerSession,
    in_run,
    parts_of,
)
from runner.labels import plain
from runner.plan.environments.plan import split_candidate
from runner.store.invocation import program_facts

MAX_RECOMPILING_BATCHES = 3
LONGEST_REASON = 400  # characters of torch's reason for a recompilation
SHARE_OF_TIMEOUT = 0.5  # the share of --timeout that rounds may take with a time budget
KILLED = "SIGKILL"  # by the kernel, for memory: the kill of a worker by this program has another name
ISOLATED = ("isolated",)
ALONE_FOR_MEMORY = "measured alone: beside other candidates, it ran out of memory"
REFERENCE_LOST = "the reference environment {name} could not run this model: {why}"

Reproduce = Callable[[Job, Sequence[str]], str]
"""Returns the command that measures these candidates of a job again."""


@dataclass(slots=True, kw_only=True)
class _Known:
    """What the workers of one environment have reported so far."""

    model: ModelFacts | None = None
    environment: dict[str, Scalar] = field(default_factory=dict)
    parity: Parity | None = None


class _BeginAgain(Exception):
    """Repeat with new workers: with a smaller batch, or without the failed reference environment."""


class _BaselineLost(Exception):
    """Eager failed in rounds with several candidates. Any of them may be the cause."""


class _TryAlone(Exception):
    """This candidate ran out of memory that others held, too. Alone it may fit."""

    def __init__(self, candidate: str) -> None:
        super().__init__(candidate)
        self.candidate = candidate


class JobRun:
    """Runs those ``candidates`` of one job that have no record yet.

    ``run()`` yields each record when it is final. ``stop()`` says whether the user wants to end after the
    current rounds. With a time budget, ``allowance(timed)`` returns the seconds for all rounds of this
    job, after ``timed`` seconds of rounds.
    """

    def __init__(
        self,
        job: Job,
        launch: Launch,
        watcher: Watcher,
        *,
        candidates: tuple[str, ...],
        place: Place,
        reproduce: Reproduce,
        stop: Callable[[], bool] = lambda: False,
        clock: Callable[[], float] = time.monotonic,
        allowance: Callable[[float], float] | None = None,
        gate: Gate | None = None,
    ) -> None:
        self._job = job
        self._launch = launch
        self._watcher = watcher
        self._candidates = candidates
        self._place = place
        self._reproduce = reproduce
        self._stop = stop
        self._clock = clock
        self._allowance = allowance
        self._gate = gate or Ungated()
        self._batch_size = job.case.batch_size
        self._started = now()
        self._known = {name: _Known() for name in place.logs}
        # (the part's eager, batch size) -> failure
        self._failed_to_open: dict[tuple[str, int | None], CallFailed] = {}

    def run(self) -> Iterator[Record]:
        """Exactly one record per candidate, unless ``stop()`` became true before the first number."""
        yield from self._not_run()
        able = tuple(c for c in self._candidates if self._why_not_run(c) is None)
        alone = self._job.protocol.isolate
        groups = deque([((c,), ISOLATED) for c in able] if alone else [(able, ())] if able else [])
        while groups and not self._stop():
            group, notes = groups.popleft()
            finished: list[Record] = []
            try:
                with closing(self._session(group, (*self._halved(), *notes))) as records:
                    for record in records:
                        self._free_memory_after(record, group)
                        finished.append(record)
                        yield record
            except _BeginAgain:
                if rest := _without(group, finished):
                    groups.appendleft((rest, notes))
                continue
            except _TryAlone as full:
                rest = _without(group, finished)
                if others := tuple(name for name in rest if name != full.candidate):
                    groups.appendleft((others, (*notes, _after(full.candidate, Status.OOM))))
                groups.appendleft(((full.candidate,), (*notes, ALONE_FOR_MEMORY)))
                continue
            except _BaselineLost as lost:
                apart = (f"measured alone: with other candidates, eager {lost}",)
                groups.extendleft([((c,), apart) for c in reversed(_without(group, finished))])
                continue
            if not finished:
                return  # ``stop()`` is true
            if rest := _without(group, finished):
                groups.appendleft((rest, (_after(finished[-1].candidate, finished[-1].status),)))

    # -- memory -------------------------------------------------------------

    def _free_memory_after(self, record: Record, group: tuple[str, ...]) -> None:
        """After out of memory: the candidate alone, with a worker of its own, then half the batch for all."""
        self._without_others_after(record.status, record.failure)
        alone = len(group) == 1 or self._job.environments
        if record.status is Status.OOM and not alone:
            raise _TryAlone(record.candidate)
        self._halve_after(record.status)

    def _without_others_after(self, status: Status, failure: Failure | None) -> None:
        """Raises ``_BeginAgain`` if other jobs held memory, too: then this job is repeated without them."""
        killed = status is Status.CRASH and failure is not None and failure.kind == KILLED
        if (status.out_of_memory or killed) and self._gate.asks_to_be_alone():
            raise _BeginAgain

    def _halve_after(self, status: Status) -> None:
        """After out of memory: raises ``_BeginAgain`` with half the batch for eager and all candidates."""
        if status.out_of_memory and (self._batch_size or 1) > 1 and not self._job.protocol.fixed_batch:
            self._batch_size = (self._batch_size or 1) // 2
            raise _BeginAgain

    def _halved(self) -> tuple[str, ...]:
        asked = self._job.case.batch_size
        if self._batch_size == asked:
            return ()
        return (f"batch {self._batch_size} instead of {asked}: not enough memory",)

    # -- one session --------------------------------------------------------

    def _session(self, candidates: tuple[str, ...], notes: tuple[str, ...]) -> Generator[Record, None, None]:
        """Records of one set of workers. After a lost worker, the last record is that of its candidate."""
        job = replace(self._job, case=replace(self._job.case, batch_size=self._batch_size))
        states: dict[str, CandidateState] = {}
        with ExitStack() as stack:
            with self._gate.preparing():
                sessions = yield from self._open_all(job, candidates, notes, states, stack)
                lost = yield from self._prepare_all(job, sessions, notes, states)
            if lost or self._stop():
                return
            if self._gate.beside:
                for state in states.values():
                    state.metrics["prepared_beside"] = self._gate.beside
            if job.protocol.performance and states:
                with self._gate.timing() as waited_s:
                    if self._stop():
                        return
                    for session in sessions:
                        session.extend(waited_s)
                    yield from self._timed(Rounds(job, sessions, self._clock), states)

        yield from self._of_states(job, sorted(states, key=candidates.index), states)  # the order of the plan

    def _prepare_all(
        self,
        job: Job,
        sessions: Sequence[WorkerSession],
        notes: tuple[str, ...],
        states: dict[str, CandidateState],
    ) -> Generator[Record, None, bool]:
        """Prepares the candidates. Returns whether a worker was lost, or ``stop()`` is true."""
        for session in sessions:
            for compiler in placement((BASELINE, *session.compilers), job):
                candidate = session.compilers.get(compiler)
                if candidate is None:
                    continue  # the worker copies eager again, at its place among the candidates
                if self._stop():
                    return True
                try:
                    states[candidate] = session.prepare(compiler, notes)
                except CallFailed as failed:
                    yield self._record(candidate, failed.status, notes, failed.failure)
                    if failed.lost:
                        return True
        return False

    def _of_states(
        self, job: Job, candidates: Sequence[str], states: Mapping[str, CandidateState]
    ) -> Iterator[Record]:
        """The records of the candidates, after their workers have ended."""
        for candidate in candidates:
            state = states[candidate]
            if job.extras.localize and state.status is Status.FAIL_ACCURACY:
                self._localize(candidate, job, state)
            yield self._record(candidate, state.status, state.notes, state.failure, state)

    def _localize(self, candidate: str, job: Job, state: CandidateState) -> None:
        """Adds to the parity of a candidate that failed where it goes wrong, found by a fresh worker."""
        if state.parity is None or self._stop():
            return
        job = replace(job, candidates=(candidate,))
        (part,) = parts_of(job, (candidate,))
        try:
            with self._launch(job) as worker:
                session = WorkerSession(part, worker, job, self._clock, job.protocol.timeout_s)
                found = session.localize(candidate, self._place.folder)
        except CallFailed as failed:
            found = Where(stage="", note=f"the search failed: {failed}")
        state.parity = replace(state.parity, where=in_run(found, Path(self._place.logs[""]).parent))

    def _open_all(
        self,
        job: Job,
        candidates: tuple[str, ...],
        notes: tuple[str, ...],
        states: dict[str, CandidateState],
        stack: ExitStack,
    ) -> Generator[Record, None, list[WorkerSession]]:
        """A session for each part of the job that these candidates need.

        If a part cannot be opened, its candidates get failure records, and the others continue.
        """
        sessions: list[WorkerSession] = []
        with ExitStack() as while_opening:
            exchange = None
            if len(job.environments) > 1 and self._place.folder is not None:
                exchange = while_opening.enter_context(exchange_in(self._place.folder))
            for part in parts_of(job, candidates):
                if self._stop():
                    break
                try:
                    session = self._open(part, job, stack, exchange)
                except CallFailed as failed:
                    of_part = (part.eager, *part.compilers.values())
                    for candidate in filter(of_part.__contains__, candidates):
                        yield self._record(candidate, failed.status, notes, failed.failure)
                    continue
                sessions.append(session)
                if exchange is not None and not part.is_reference:
                    yield from self._compare_eager(session, exchange, part.eager in candidates, states, notes)
        return sessions

    def _open(self, part: Part, job: Job, stack: ExitStack, exchange: Exchange | None) -> WorkerSession:
        """Starts a worker and opens its session. A part that failed to open is not tried again."""
        tried = part.eager, self._batch_size
        if tried in self._failed_to_open:
            raise self._failed_to_open[tried]
        part_job = part.of(job)
        worker = stack.enter_context(self._launch(part_job))
        # with several environments, each worker also waits while the others compile and are timed
        patience_s = job.protocol.timeout_s * (1 + len(job.environments))
        session = WorkerSession(part, worker, part_job, self._clock, patience_s)
        try:
            model, environment = session.open(None if exchange is None else exchange.weights)
            known = self._known[part.name]
            known.model, known.environment = model, environment
            if exchange is not None and part.is_reference:
                exchange.export(session)
        except CallFailed as failed:
            self._remember(failed)
            raise
        return session

    def _remember(self, failed: CallFailed) -> None:
        """Remembers that this part cannot be measured, unless alone or a smaller batch can be tried."""
        self._without_others_after(failed.status, failed.failure)
        self._failed_to_open[failed.session.part.eager, self._batch_size] = failed
        self._halve_after(failed.status)

    def _compare_eager(
        self,
        session: WorkerSession,
        exchange: Exchange,
        eager_asked: bool,
        states: dict[str, CandidateState],
        notes: tuple[str, ...],
    ) -> Iterator[Record]:
        """Checks cross-environment parity. This eager is also a candidate if ``eager_asked``."""
        eager = session.part.eager
        if exchange.reference is None:
            if eager_asked:
                yield self._without_reference(eager, notes)
            return
        try:
            found = exchange.cross_parity(session, notes)
        except CallFailed as failed:
            if eager_asked:
                yield self._record(eager, failed.status, notes, failed.failure)
            return
        if session.part.name != self._job.environments[0].name:
            judged = found.status not in (Status.EAGER_TWO_RUNS_DIFFER, Status.CANNOT_JUDGE)
            self._known[session.part.name].parity = found.parity if judged else None
        if eager_asked:
            states[eager] = found

    # -- rounds -----------------------------------------------------------------

    def _timed(self, rounds: Rounds, states: dict[str, CandidateState]) -> Iterator[Record]:
        """Warm-up, rounds and step metrics. Removes a candidate that fails from ``states``."""
        while states:
            batch = Batch()
            try:
                rounds.warm_up(states)
                decision = self._next(rounds, states)
                if decision.again:
                    self._measure_again(decision.again, states)
                    continue
                if self._ends(decision, states):
                    break
                rounds.measure(decision, batch)
            except CallFailed as failed:
                blamed = self._blame(failed, states)
                state = states.pop(blamed)
                status = Status.EAGER_FAIL_TO_RUN if failed.of_eager else failed.status
                yield self._record(blamed, status, state.notes, failed.failure, state)
                if failed.lost:
                    states.clear()  # the others are measured again by fresh workers
                    return
            yield from self._take(states, batch)
            rounds.keep_only(states)
            self._watcher.rounds(_least_rounds(states), rounds.pairs(states))
        if states:
            rounds.finish(states)

    def _next(self, rounds: Rounds, states: Mapping[str, CandidateState]) -> Decision:
        allowed, elapsed_s = None, rounds.elapsed_s
        if self._allowance is not None:  # limited, so that the worker does not reach --timeout
            allowed = min(self._allowance(elapsed_s), SHARE_OF_TIMEOUT * self._job.protocol.timeout_s)
        pairs = rounds.pairs(states)  # of a candidate, and over eager of the reference environment
        tau = {name: assumed_in(self._job, name) if name in states else ASSUMED_ACROSS for name in pairs}
        again = not any(state.measured_again for state in states.values())
        return decide(self._job.protocol, pairs, elapsed_s, allowed, tau, again=again)

    @staticmethod
    def _measure_again(why: str, states: Mapping[str, CandidateState]) -> None:
        """Discards the rounds of all candidates, once: what settles late has settled now."""
        for state in states.values():
            state.notes += (f"measured again after {len(state.rounds)} rounds: {why}",)
            state.measured_again = True
            state.rounds.clear()

    def _ends(self, decision: Decision, states: Mapping[str, CandidateState]) -> bool:
        """Whether timing ends. If it does, sets ``rounds_ended`` of every candidate."""
        stopped = self._stop() and _least_rounds(states) > 0
        if decision.rounds > 0 and not stopped:
            return False
        for state in states.values():
            state.rounds_ended = decision.reason if decision.rounds == 0 else STOPPED
        return True

    def _take(self, states: dict[str, CandidateState], batch: Batch) -> Iterator[Record]:
        """Adds the batch to the candidates that did not recompile during it; discards the others' rounds."""
        for candidate, state in list(states.items()):
            if candidate not in batch.recompiled:
                state.rounds += batch.rounds
                continue
            state.recompiling += 1
            state.rounds.clear()
            if state.recompiling >= MAX_RECOMPILING_BATCHES:
                del states[candidate]
                why = plain(batch.reasons.get(candidate, ""))[:LONGEST_REASON]
                message = (
                    f"{candidate} compiled again during {MAX_RECOMPILING_BATCHES} batches of timed rounds; "
                    + (f"the latest reason: {why}" if why else "look for values that change between steps")
                )
                failure = Failure(kind="Recompiles", message=message, phase="measure")
                yield self._record(candidate, Status.RECOMPILES, state.notes, failure, state)

    def _blame(self, failed: CallFailed, states: Mapping[str, CandidateState]) -> str:
        """The candidate responsible for a failed call: the running one, or the only one of the worker.

        If eager failed in a worker with several candidates, one of them may have damaged the process.
        ``_BaselineLost`` then has each of them measured alone. A worker without candidates ran the
        reference environment's eager; ``_BeginAgain`` then repeats the job without this environment.
        """
        here = [candidate for candidate in failed.session.candidates if candidate in states]
        running = failed.session.compilers.get(failed.running)
        if running in here:
            return running
        if not here:
            self._remember(failed)
            raise _BeginAgain
        if len(here) > 1:
            ended = f"ended the worker ({failed.failure.kind})"
            raise _BaselineLost(ended if failed.lost else "failed in timed rounds")
        return here[0]

    # -- records ------------------------------------------------------------

    def _record(
        self,
        candidate: str,
        status: Status,
        notes: tuple[str, ...],
        failure: Failure | None = None,
        state: CandidateState | None = None,
    ) -> Record:
        env = split_candidate(self._job, candidate)[1].name if self._job.environments else ""
        known, state = self._known[env], state or CandidateState(status=status)
        if failure is not None:
            failure = replace(failure, log=failure.log or self._place.logs[env])
        return Record(
            job=self._job,
            candidate=candidate,
            status=status,
            parity=state.parity,
            samples=state.samples,
            metrics=state.metrics,
            model=known.model,
            environment={**program_facts(), **known.environment},
            failure=failure,
            reproduce=self._reproduce(self._job, (candidate,)),
            notes=notes,
            started=self._started,
            ended=now(),
            env=env,
            env_parity=known.parity,
            first_calls_s=state.first_calls_s,
            rounds_ended=state.rounds_ended,
            assumed_between_sd=None if state.samples is None else assumed_in(self._job, candidate),
        )

    def _without_reference(self, eager: str, notes: tuple[str, ...]) -> Record:
        reference = self._job.environments[0].name
        failed = self._failed_to_open[BASELINE, self._batch_size]
        message = REFERENCE_LOST.format(name=reference, why=failed.failure.message)
        failure = replace(failed.failure, message=message, log=self._place.logs[reference])
        return self._record(eager, failed.status, notes, failure)

    def _why_not_run(self, candidate: str) -> str | None:
        return self._job.case.skip or self._job.unavailable.get(candidate)

    def _not_run(self) -> Iterator[Record]:
        unless = " --no-skip" if self._job.case.skip else ""
        for candidate in self._candidates:
            why = self._why_not_run(candidate)
            if why is not None:
                failure = Failure(kind="skipped", message=why, phase="plan")
                record = self._record(candidate, Status.SKIP, ())
                yield replace(record, failure=failure, reproduce=f"{record.reproduce}{unless}")


def _after(candidate: str, status: Status) -> str:
    return f"measured in a fresh worker after {candidate} ended as {status.value}"


def _least_rounds(states: Mapping[str, CandidateState]) -> int:
    return min((len(state.rounds) for state in states.values()), default=0)


def _without(group: tuple[str, ...], finished: Sequence[Record]) -> tuple[str, ...]:
    done = {record.candidate for record in finished}
    return tuple(candidate for candidate in group if candidate not in done)


def now() -> str:
    return datetime.now(timezone.utc).isoformat(timespec="milliseconds")
