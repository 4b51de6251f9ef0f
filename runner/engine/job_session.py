"""One set of workers for some candidates of a job: opened together, prepared, timed and ended.

A job of several environments has a worker for each, all open at once.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from pathlib import Path

from harness.backends.settings.candidates import compiler_of
from harness.devices import of
from harness.protocol import AUTO, BITWISE
from harness.schema import (
    BASELINE,
    BREAKS_ON_OTHER_DATA,
    Failure,
    Job,
    ModelFacts,
    Numerics,
    Parity,
    Record,
    Scalar,
    Status,
    Where,
)
from harness.timing.measure import placement
from harness.worker.status_page import Activity
from runner.analysis.verdicts.between import assumed_in
from runner.engine import JobContext
from runner.engine.pairs import PairedRounds, columns
from runner.engine.replies import Measured
from runner.engine.training import train
from runner.engine.worker_session import CallFailed, CandidateState, Launch, Part, WorkerSession, parts_of
from runner.names import plain
from runner.plan.environments.spec import EAGER, split_candidate
from runner.store.figures import figures_file
from runner.store.invocation import program_facts

MAX_RECOMPILING_BATCHES = 3
PREVIEWED_ROUNDS = 10
LONGEST_REASON = 400  # characters of torch's reason for a recompilation
KILLED = "SIGKILL"  # by the kernel, for memory: the kill of a worker by this program has another name
REFERENCE_LOST = "the reference environment {name} could not run this model: {why}"

Group = tuple[tuple[str, ...], tuple[str, ...]]
"""Candidates that share workers, and the notes that their records get."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Retry:
    """New workers measure these groups, in this order, instead of the rest of the session."""

    groups: tuple[Group, ...]

    def without(self, finished: Sequence[Record]) -> Retry:
        done = {record.candidate for record in finished}
        groups = ((tuple(c for c in candidates if c not in done), notes) for candidates, notes in self.groups)
        return Retry(groups=tuple(group for group in groups if group[0]))


Events = Generator[Record | Retry, None, None]
"""Final records. A ``Retry`` is the last event of its session."""


@dataclass(slots=True, kw_only=True)
class _Reported:
    """What the workers of one environment have reported so far."""

    model: ModelFacts | None = None
    environment: dict[str, Scalar] = field(default_factory=dict)
    parity: Parity | None = None
    controls: tuple[Numerics, ...] = ()


@dataclass(slots=True, kw_only=True)
class _Exchange:
    """The file of weights that the reference environment's session exports, for the others to import.

    ``notes``: why the other sessions have their own weights and inputs.
    """

    file: Path
    has_reference: bool = False
    notes: tuple[str, ...] = ()

    @property
    def exported(self) -> Path | None:
        return self.file if self.has_reference and not self.notes else None

    def export(self, reference: WorkerSession) -> None:
        """Exports the reference's weights. Raises ``CallFailed`` if the worker is lost."""
        try:
            reference.export(self.file)
        except CallFailed as failed:
            if failed.lost:
                raise
            self.notes = (f"has its own weights and inputs, because the export failed: {failed}",)
        self.has_reference = True


@contextmanager
def _exchange_in(folder: Path) -> Iterator[_Exchange]:
    """An exchange in a temporary folder. Deletes first what a killed run left in ``folder``."""
    for leftover in folder.glob("exchange-*"):
        shutil.rmtree(leftover, ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix="exchange-", dir=folder) as name:
        yield _Exchange(file=Path(name) / "weights.pt")


class JobState:
    """What outlives a job's sessions: its batch size, the parts that failed to open, the workers' reports."""

    def __init__(self, job: Job, context: JobContext) -> None:
        self.job = job
        self.context = context
        self.batch_size = job.case.batch_size
        self.pace = of(job.device).pace
        self.patience = 1.0  # the share of the time limit that the next workers have
        self.reported = {name: _Reported() for name in context.place.logs}
        # (the part's eager, batch size) -> failure
        self.failed_to_open: dict[tuple[str, int | None], CallFailed] = {}
        self.first_data_only = ""  # why parity is not checked on other data
        self._started = now()

    def omits_other_data(self, failure: Failure) -> bool:
        """After a device that broke on other data, which may be none that the model takes: once."""
        if failure.kind != BREAKS_ON_OTHER_DATA or self.first_data_only:
            return False
        self.first_data_only = f"the model breaks the device on it ({failure.message})"
        return True

    def asks_to_be_alone(self, status: Status, failure: Failure | None) -> bool:
        """Whether the job is repeated without other jobs, because they held memory that it lacked."""
        killed = status is Status.CRASH and failure is not None and failure.kind == KILLED
        return (status.out_of_memory or killed) and self.context.gate.asks_to_be_alone()

    def halves(self, status: Status) -> bool:
        """After out of memory: halves the batch for eager and all candidates, if that is possible."""
        size = self.batch_size or 1
        if not status.out_of_memory or size == 1 or self.job.protocol.fixed_batch:
            return False
        self.batch_size = size // 2
        return True

    def halved(self) -> tuple[str, ...]:
        """A note, if the batch is smaller than planned."""
        planned = self.job.case.batch_size
        if self.batch_size == planned:
            return ()
        return (f"batch {self.batch_size} instead of {planned}: not enough memory",)

    def record(self, candidate: str, state: CandidateState) -> Record:
        env, failure = self._env(candidate), state.failure
        reported = self.reported[env]
        assumed = None
        if state.samples is not None:
            assumed = assumed_in(self.job, candidate, state.samples.baseline_s)
        if failure is not None:
            failure = replace(failure, log=failure.log or self.context.place.logs[env])
        return Record(
            job=self.job,
            candidate=candidate,
            status=state.status,
            parity=state.parity,
            samples=state.samples,
            metrics=state.metrics,
            model=reported.model,
            environment={**program_facts(), **reported.environment},
            failure=failure,
            reproduce=self.context.reproduce(self.job, (candidate,)),
            notes=state.notes,
            started=self._started,
            ended=now(),
            env=env,
            env_parity=reported.parity,
            first_calls_s=state.first_calls_s,
            rounds_ended=state.rounds_ended,
            trajectory=state.trajectory,
            assumed_between_sd=assumed,
            numerics=state.numerics,
            numerics_controls=reported.controls,
        )

    def _env(self, candidate: str) -> str:
        return split_candidate(self.job, candidate)[1].name if self.job.environments else ""


class JobSession:
    """One set of workers for a group. After a lost worker, the last record is that of its candidate."""

    def __init__(self, state: JobState, launch: Launch, group: Group) -> None:
        self._state = state
        self._context = state.context
        self._job = replace(state.job, case=replace(state.job.case, batch_size=state.batch_size))
        self._launch = launch
        self._group = group
        self._candidates = group[0]
        self._notes = (*state.halved(), *group[1])
        self._prepared_s = 0.0  # of a process that pursues a verdict
        self._sessions: list[WorkerSession] = []
        self._candidate_states: dict[str, CandidateState] = {}

    def events(self) -> Events:
        """Opens, prepares and times; then the records of the candidates that did not fail before."""
        states, gate = self._candidate_states, self._context.gate
        with ExitStack() as workers:
            gate.wait_to_prepare()
            began = self._context.clock()
            yield from self._open_all(workers)
            yield from self._prepare_all()
            protocol = self._job.protocol
            if protocol.process and protocol.processes == AUTO:
                self._prepared_s = self._context.clock() - began
            if self._context.stop():
                return
            if gate.beside:
                for state in states.values():
                    state.metrics["prepared_beside"] = gate.beside
            if self._job.protocol.performance and states:
                self._context.doing(Activity(phase="prepare"))
                waited_s = gate.wait_to_be_timed()
                if self._context.stop():
                    return
                for session in self._sessions:
                    session.extend(waited_s)
                yield from self._timed()
            if states and self._job.extras.trajectory and not self._job.protocol.process:
                train(self._job, self._sessions[0], states, self._context.stop)
        yield from self._passed()

    # -- opening and preparing ----------------------------------------------

    def _open_all(self, workers: ExitStack) -> Events:
        """A session for each part of the job that these candidates need.

        If a part cannot be opened, its candidates get failure records, and the others continue.
        """
        folder = self._context.place.folder
        with ExitStack() as while_opening:
            exchange, parts = None, parts_of(self._job, self._candidates)
            if len(parts) > 1 and folder is not None:
                exchange = while_opening.enter_context(_exchange_in(folder))
            for part in parts:
                if self._context.stop():
                    return
                try:
                    session = self._open(part, workers, exchange)
                    if exchange is not None and not part.is_reference:
                        yield from self._compare_eager(session, exchange)
                except CallFailed as failed:
                    if self._remember(part, failed):
                        yield Retry(groups=(self._group,))
                    of_part = (part.eager, *part.compilers.values())
                    for candidate in filter(of_part.__contains__, self._candidates):
                        yield self._failed(candidate, failed)
                    continue
                self._sessions.append(session)

    def _open(self, part: Part, workers: ExitStack, exchange: _Exchange | None) -> WorkerSession:
        """Starts a worker and opens its session. A part that failed to open is not tried again."""
        earlier = self._state.failed_to_open.get((part.eager, self._state.batch_size))
        if earlier is not None:
            raise earlier
        part_job = part.of(self._job)
        worker = workers.enter_context(self._launch(part_job))
        # with several environments, each worker also waits while the others compile and are timed
        patience_s = self._state.patience * self._job.protocol.timeout_s * (1 + len(self._job.environments))
        session = WorkerSession(part, worker, part_job, self._context.clock, patience_s)
        opened = session.open(exchange.exported if exchange else None, self._state.first_data_only)
        reported = self._state.reported[part.name]
        reported.model, reported.environment = opened.model, opened.environment
        reported.controls = opened.controls
        if exchange is not None and part.is_reference:
            exchange.export(session)
        return session

    def _remember(self, part: Part, failed: CallFailed) -> bool:
        """Whether alone or a smaller batch can be tried; else the part is remembered as not measurable."""
        failures, key = self._state.failed_to_open, (part.eager, self._state.batch_size)
        if key in failures:
            return False
        lacked_memory = self._state.asks_to_be_alone(failed.status, failed.failure)
        if lacked_memory or self._state.omits_other_data(failed.failure):
            return True
        failures[key] = failed
        return self._state.halves(failed.status)

    def _compare_eager(self, session: WorkerSession, exchange: _Exchange) -> Events:
        """Checks cross-environment parity. The session's eager may also be a candidate."""
        eager = session.part.eager
        is_candidate = eager in self._candidates
        if not exchange.has_reference:
            if is_candidate:
                yield self._without_reference(eager)
            return
        try:
            state = session.cross_parity((*self._notes, *exchange.notes))
        except CallFailed as failed:
            if failed.lost:
                raise  # no candidate can run in this worker
            if is_candidate:
                yield self._failed(eager, failed)
            return
        if session.part.name != self._job.environments[0].name:
            judged = state.status not in (Status.EAGER_TWO_RUNS_DIFFER, Status.CANNOT_JUDGE)
            self._state.reported[session.part.name].parity = state.parity if judged else None
        if is_candidate:
            self._candidate_states[eager] = state

    def _without_reference(self, eager: str) -> Record:
        reference = self._job.environments[0].name
        failed = self._state.failed_to_open[BASELINE, self._state.batch_size]
        message = REFERENCE_LOST.format(name=reference, why=failed.failure.message)
        failure = replace(failed.failure, message=message, log=self._context.place.logs[reference])
        state = CandidateState(status=failed.status, notes=self._notes, failure=failure)
        return self._state.record(eager, state)

    def _failed(self, candidate: str, failed: CallFailed) -> Record:
        state = CandidateState(status=failed.status, notes=self._notes, failure=failed.failure)
        return self._state.record(candidate, state)

    def _prepare_all(self) -> Events:
        """Prepares the candidates, until ``stop()`` is true or a worker is lost."""
        folder, first = self._context.place.folder, self._first()
        for session in self._sessions:
            order = placement((BASELINE, *session.compilers), self._job)
            for compiler in sorted(order, key=lambda name: name != first):
                candidate = session.compilers.get(compiler)
                if candidate is None:
                    continue  # the worker copies eager again, at its place among the candidates
                if self._context.stop():
                    return
                figures = None if folder is None else folder / figures_file(candidate)
                try:
                    self._candidate_states[candidate] = session.prepare(compiler, self._notes, figures)
                except CallFailed as failed:
                    if self._state.omits_other_data(failed.failure):
                        yield Retry(groups=(self._group,))
                    yield self._failed(candidate, failed)
                    if failed.lost:
                        self._candidate_states.clear()  # the others are measured again by fresh workers
                        return
                    continue
                if compiler == first and self._candidate_states[candidate].status.passed:
                    yield from self._preview(session, candidate)
                    if not self._candidate_states:
                        return

    def _preview(self, session: WorkerSession, candidate: str) -> Events:
        """Tells a first number. A failure that the worker survives comes again, and counts, in the rounds."""
        try:
            rounds = session.preview(candidate, PREVIEWED_ROUNDS).rounds
        except CallFailed as failed:
            if failed.lost:
                yield from self._after(failed)
            return
        if self._context.preview is not None:
            self._context.preview({candidate: columns(rounds, BASELINE, candidate)})

    def _first(self) -> str:
        """The candidate that is prepared first and timed at once, inductor if there is one; "": none."""
        timed = self._job.protocol.performance and len(self._candidates) > 1
        if self._context.preview is None or self._job.environments or not timed:
            return ""
        compiled = (name for name in self._candidates if compiler_of(name) != EAGER)
        return min(compiled, key=lambda name: not name.startswith("inductor"), default="")

    # -- rounds -----------------------------------------------------------------

    def _timed(self) -> Events:
        """Warm-up, rounds and step metrics. Removes a candidate that fails from the candidates' states."""
        states = self._candidate_states
        rounds = PairedRounds(self._job, self._sessions, states, self._context, self._prepared_s)
        while rounds.timed:
            batch = Measured(rounds=(), recompiled={})
            try:
                rounds.warm_up()
                if not rounds.go_on(batch):
                    break
            except CallFailed as failed:
                yield from self._after(failed)
                if failed.lost:
                    return
            yield from self._take(batch, rounds.timed)
            rounds.keep_only()
            self._context.timed(rounds.fewest, rounds.pairs())
        if states:
            rounds.finish()

    def _take(self, batch: Measured, timed: Mapping[str, CandidateState]) -> Events:
        """Adds the batch to the candidates that did not recompile during it; discards the others' rounds."""
        for candidate, state in timed.items():
            if candidate not in batch.recompiled:
                state.rounds += batch.rounds
                continue
            state.recompiling += 1
            state.rounds.clear()
            if state.recompiling >= MAX_RECOMPILING_BATCHES:
                del self._candidate_states[candidate]
                state.status = Status.RECOMPILES
                state.failure = _recompiles(candidate, batch.reasons.get(candidate, ""))
                yield self._state.record(candidate, state)

    def _after(self, failed: CallFailed) -> Events:
        """The record of the candidate responsible for a failed call: the one that ran, or the only one.

        If eager failed in a worker with several candidates, one of them may have damaged the process: each
        is then measured alone. A worker without candidates ran the reference environment's eager: the job
        is then repeated without this environment.
        """
        states, session = self._candidate_states, failed.session
        here = [name for name in (session.part.eager, *session.compilers.values()) if name in states]
        blamed = session.compilers.get(failed.running)
        if blamed not in here:
            if not here:
                self._remember(session.part, failed)
                yield Retry(groups=(self._group,))
            if len(here) > 1:
                ended = (
                    f"ended the worker ({failed.failure.kind})" if failed.lost else "failed in timed rounds"
                )
                notes = (f"measured alone: with other candidates, eager {ended}",)
                yield Retry(groups=tuple(((candidate,), notes) for candidate in self._candidates))
            blamed = here[0]
        state = states.pop(blamed)
        state.status = Status.EAGER_FAIL_TO_RUN if failed.of_eager else failed.status
        state.failure = failed.failure
        yield self._state.record(blamed, state)
        if failed.lost:
            states.clear()  # the others are measured again by fresh workers

    # -- after the workers have ended ---------------------------------------

    def _passed(self) -> Events:
        """The records of the remaining candidates, in the order of the plan."""
        asked, protocol = self._job.extras.localize, self._job.protocol
        bits = asked == BITWISE and not (protocol.process or protocol.start)
        for candidate in sorted(self._candidate_states, key=self._candidates.index):
            state = self._candidate_states[candidate]
            wrong = state.status is Status.FAIL_ACCURACY
            if (asked and wrong) or (bits and compiler_of(candidate) != EAGER):
                self._localize(candidate, state)
            yield self._state.record(candidate, state)

    def _localize(self, candidate: str, state: CandidateState) -> None:
        """Adds to the parity of a candidate that failed where it goes wrong, found by a fresh worker."""
        if state.parity is None or self._context.stop():
            return
        job, place = replace(self._job, candidates=(candidate,)), self._context.place
        (part,) = parts_of(job, (candidate,))
        try:
            with self._launch(job) as worker:
                session = WorkerSession(part, worker, job, self._context.clock, job.protocol.timeout_s)
                where = session.localize(candidate, place.folder)
        except CallFailed as failed:
            where = Where(stage="", note=f"the search failed: {failed}")
        if where.repro:  # from the folder of the run
            where = replace(where, repro=str(Path(place.logs[""]).parent / where.repro))
        state.parity = replace(state.parity, where=where)


def _recompiles(candidate: str, reason: str) -> Failure:
    why = plain(reason)[:LONGEST_REASON]
    message = f"{candidate} compiled again during {MAX_RECOMPILING_BATCHES} batches of timed rounds; " + (
        f"the latest reason: {why}" if why else "look for values that change between steps"
    )
    return Failure(kind="Recompiles", message=message, phase="measure")


def now() -> str:
    return datetime.now(timezone.utc).isoformat(timespec="milliseconds")
