"""One job through a worker for each environment, all open at once, until every candidate has its record.

All prepare; then a round of all is one round of each, in a random order. The worker
that is not asked is idle. A candidate that fails costs itself only; when a worker
is lost, what has no record yet is measured again by fresh workers.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path

from harness.codec import from_json
from harness.schema import BASELINE, Failure, Job, ModelFacts, Parity, Record, Round, Scalar, Status
from runner.calls import Calls, CandidateFailed, Launch
from runner.environments.plan import split_candidate
from runner.environments.seats import (
    Seat,
    Timing,
    Trouble,
    baseline_of,
    joined,
    pairs_between,
    samples_of,
    seat_order,
    seats_for,
)
from runner.execute import JobRun, Watcher, _TooLarge, with_facts
from runner.pairs import CandidateState, take_first_calls
from runner.worker_process import WorkerLost

ALL_DAY = 1e9  # seconds: the parent itself looks at the clock between rounds
HANDOVER = "handover-"
GIVEN, SHAKEN = "given.safetensors", "shaken.safetensors"
REFERENCE_LOST = "the reference environment {name} could not run this model: {why}"


class _SeatLost(Exception):
    """A worker has failed of which no candidate is to have a record now."""

    def __init__(self, seat: Seat, status: Status, failure: Failure) -> None:
        super().__init__(failure.message)
        self.seat = seat
        self.trouble = Trouble(status=status, failure=failure)


class EnvironmentsRun(JobRun):
    """As ``JobRun``, for a job of several environments.

    ``launch`` is given a job of one environment and its compilers. ``logs`` says for each
    environment what records call its log. Weights and inputs go from one to the others
    through ``folder``.
    """

    def __init__(
        self,
        job: Job,
        launch: Launch,
        watcher: Watcher,
        *,
        candidates: tuple[str, ...],
        logs: Mapping[str, str],
        folder: Path,
        stop: Callable[[], bool] = lambda: False,
        clock: Callable[[], float] = time.monotonic,
        allowance: Callable[[float], float] | None = None,
    ) -> None:
        super().__init__(
            job, launch, watcher, candidates=candidates, log="", stop=stop, clock=clock, allowance=allowance
        )
        self._logs = logs
        self._folder = self._handover = folder
        self._facts: dict[str, tuple[ModelFacts, dict[str, Scalar]]] = {}
        self._agreement: dict[str, Parity | None] = {}
        self._troubles: dict[tuple[str, int | None], Trouble] = {}  # by the seat's eager, and the batch
        self._seats: list[Seat] = []
        self._iterations = 1
        self._not_handed = ""
        self._lost_one = False  # a worker has just been lost: its record is out, the others begin again

    # -- one life of all workers ------------------------------------------------

    def _session(self, candidates: tuple[str, ...], notes: tuple[str, ...]) -> Iterator[Record]:
        left = candidates
        while left:
            try:
                for record in self._together(left, notes):
                    left = tuple(candidate for candidate in left if candidate != record.candidate)
                    yield record
            except _SeatLost as lost:  # the reference, of which nothing is left to record: without it, then
                self._note_trouble(lost.seat, lost.trouble)
                continue
            return

    def _together(self, candidates: tuple[str, ...], notes: tuple[str, ...]) -> Iterator[Record]:
        job = replace(self._job, case=replace(self._job.case, batch_size=self._batch_size))
        seats = seats_for(job, candidates)
        wanted = {seat.candidate(v): seat for seat in seats for v in (BASELINE, *seat.compilers)}
        states: dict[str, CandidateState] = {}
        for left in self._folder.glob(f"{HANDOVER}*"):  # of a run that was killed
            shutil.rmtree(left, ignore_errors=True)
        with ExitStack() as stack:
            with tempfile.TemporaryDirectory(prefix=HANDOVER, dir=self._folder) as handover:
                self._handover = Path(handover)
                self._seats, self._iterations, self._not_handed = [], 1, ""
                for seat in seats:
                    mine = [c for c in candidates if wanted[c] is seat]
                    yield from self._take_seat(seat, mine, job, stack, states, notes)
                    if self._stop():
                        return
            for seat in self._seats:
                yield from self._prepare_seat(seat, states, notes)
                if self._stop() or self._lost_one:
                    return
            if job.protocol.performance and states:
                yield from self._timed_together(states)
            for candidate, state in states.items():
                yield self._done(candidate, state)

    def _take_seat(
        self,
        seat: Seat,
        mine: Sequence[str],
        job: Job,
        stack: ExitStack,
        states: dict[str, CandidateState],
        notes: tuple[str, ...],
    ) -> Iterator[Record]:
        """Opens a worker. Where that fails, the records say so, and the others go on without it."""
        self._lost_one = False
        trouble = self._troubles.get((seat.eager, self._batch_size))
        if trouble is None:
            try:
                self._open_seat(seat, job, stack)
            except CandidateFailed as failed:
                trouble = Trouble(status=failed.status, failure=failed.failure)
            except WorkerLost as lost:
                trouble = Trouble(status=lost.status, failure=lost.failure)
            if trouble is not None:
                self._note_trouble(seat, trouble)
        if trouble is not None:
            yield from (self._failed(c, trouble.status, trouble.failure, notes) for c in mine)
            return
        if seat.eager in mine and self._reference_seat() is None:
            yield self._without_reference(seat, notes)
        elif not seat.is_reference:
            yield from self._agree(seat, states, mine, notes)
        self._seats.append(seat)

    def _note_trouble(self, seat: Seat, trouble: Trouble) -> None:
        """Remembers it, so that no other session tries again. Too large a batch is tried smaller."""
        self._troubles[seat.eager, self._batch_size] = trouble
        candidate = next(iter(self._job.candidates))
        if self._may_halve(self._failed(candidate, trouble.status, trouble.failure, ())):
            raise _TooLarge

    def _open_seat(self, seat: Seat, job: Job, stack: ExitStack) -> None:
        part = replace(
            job, candidates=tuple(seat.compilers), environments=(seat.environment,), unavailable={}
        )
        # each waits while others compile and are timed
        patience = job.protocol.timeout_s * (1 + len(job.environments))
        timed = replace(part, protocol=replace(part.protocol, timeout_s=patience))
        calls = Calls(stack.enter_context(self._launch(part)), timed, self._clock)
        alone = seat.is_reference or self._reference_seat() is None or self._not_handed
        given = {} if alone else {"given": str(self._handover / GIVEN)}
        reply = calls("open", **given)
        self._facts[seat.environment.name] = (from_json(ModelFacts, reply["model"]), reply["environment"])
        seat.calls = calls
        if seat.is_reference and len(job.environments) > 1:
            try:
                calls("hand_over", path=str(self._handover / GIVEN))
            except CandidateFailed as failed:
                self._not_handed = f"with weights and inputs of its own: {failed.failure.message}"

    def _reference_seat(self) -> Seat | None:
        return next((seat for seat in self._seats if seat.is_reference), None)

    def _agree(
        self, seat: Seat, states: dict[str, CandidateState], mine: Sequence[str], notes: tuple[str, ...]
    ) -> Iterator[Record]:
        """Whether another environment's eager computes what the reference's does."""
        try:
            reply = seat.asked("agree")
            if (reply["parity"] or {}).get("failed") and self._shaken():
                reply = seat.asked("agree", shaken=str(self._shaken()))
        except (CandidateFailed, WorkerLost) as failed:
            if seat.eager in mine:
                yield self._failed(seat.eager, failed.status, failed.failure, notes)
            return
        found = from_json(Parity, reply["parity"]) if reply["parity"] is not None else None
        status = Status.PASS_DUE_TO_SKIP
        if found is not None:
            status = Status.FAIL_ACCURACY if found.failed else Status.PASS
            status = status if reply["judged"] else Status.EAGER_TWO_RUNS_DIFFER
        if seat.environment.name != self._job.environments[0].name:
            self._agreement[seat.environment.name] = found if reply["judged"] else None
        said = tuple(note for note in (self._not_handed, reply["note"]) if note)
        if seat.eager in mine:
            states[seat.eager] = CandidateState(
                status=status, parity=found, metrics={}, notes=(*notes, *said)
            )

    def _shaken(self) -> Path | None:
        """What the reference's eager makes of weights changed in their last digits; None: nothing to say."""
        path = self._handover / SHAKEN
        reference = self._reference_seat()
        if reference is not None and not path.exists():
            with suppress(CandidateFailed):
                reference.asked("shake", path=str(path))
        return path if path.exists() else None

    def _without_reference(self, seat: Seat, notes: tuple[str, ...]) -> Record:
        reference = self._job.environments[0].name
        trouble = self._troubles[BASELINE, self._batch_size]
        message = REFERENCE_LOST.format(name=reference, why=trouble.failure.message)
        failure = replace(trouble.failure, message=message, log=self._logs[reference])
        return self._failed(seat.eager, trouble.status, failure, notes)

    def _prepare_seat(
        self,
        seat: Seat,
        states: dict[str, CandidateState],
        notes: tuple[str, ...],
    ) -> Iterator[Record]:
        for compiler, candidate in list(seat.compilers.items()):
            try:
                states[candidate] = self._prepare(seat.asked, compiler, notes)
            except CandidateFailed as failed:
                del seat.compilers[compiler]
                yield self._failed(candidate, failed.status, failed.failure, notes)
            except WorkerLost as lost:
                self._lost_one = True
                yield self._lost(candidate, lost, notes)
                return
            if self._stop():
                return

    # -- rounds -----------------------------------------------------------------

    def _timed_together(self, states: dict[str, CandidateState]) -> Iterator[Record]:
        """Warm-up, rounds and step metrics; takes out of ``states`` whoever fails on the way."""
        timing = Timing()
        while states and not timing.over:
            timing.rounds, timing.recompiled = [], {}
            try:
                self._warm_up_all(states, timing)
                self._measure_batch(states, timing)
            except CandidateFailed as failed:
                seat = timing.seat_asked
                running = seat.asked.running()
                blamed = self._blame_in(seat, running, states, failed.status, failed.failure)
                eager = running not in seat.compilers and not failed.status.out_of_memory
                status = Status.EAGER_FAIL_TO_RUN if eager else failed.status
                state = states.pop(blamed)
                yield self._failed(blamed, status, failed.failure, state.notes, state)
            except WorkerLost as lost:
                seat, variant = timing.seat_asked, lost.activity.variant
                blamed = self._blame_in(seat, variant, states, lost.status, lost.failure)
                yield self._lost(blamed, lost, states[blamed].notes, states[blamed])
                states.clear()  # the others are measured again by fresh workers
                return
            yield from self._take(states, timing.rounds, timing.recompiled)
            self._let_go(states)
            self._watcher.rounds(self._least_rounds(states), self._pairs(states))
        if states:
            self._finish_all(states, timing)

    def _warm_up_all(self, states: Mapping[str, CandidateState], timing: Timing) -> None:
        for seat in self._seats:
            if id(seat) not in timing.warmed:
                timing.seat = seat
                reply = seat.asked("warm_up", candidates=list(seat.compilers))
                mine = {compiler: states[c] for compiler, c in seat.compilers.items() if c in states}
                take_first_calls(mine, reply)
                timing.warmed[id(seat)] = reply["metrics"]
                timing.began = self._clock()
        known = [int(str(one["iterations_per_sample"])) for one in timing.warmed.values()]
        self._iterations = max(self._iterations, *known)

    def _measure_batch(self, states: Mapping[str, CandidateState], timing: Timing) -> None:
        """As many rounds of all as are wanted now; none, and it is over, when there are enough."""
        began = self._clock()
        decision = self._next(states, began - timing.began)
        if decision.rounds == 0 or (self._stop() and self._least_rounds(states) > 0):
            timing.over = True
            return
        while len(timing.rounds) < decision.rounds:
            if timing.rounds and self._clock() - began > decision.within_s:
                return
            parts = []
            for seat in seat_order(self._seats, self._job.protocol, timing.number):
                timing.seat = seat
                one, again = self._one_round(seat)
                parts.append((seat, one))
                timing.recompiled.update(again)
            timing.rounds.append(joined(parts, timing.number))
            timing.number += 1

    def _one_round(self, seat: Seat) -> tuple[Round, dict[str, int]]:
        reply = seat.asked(
            "measure",
            rounds=1,
            within_s=ALL_DAY,
            candidates=list(seat.compilers),
            iterations=self._iterations,
        )
        # what is compiled under eager's name was compiled in the sample that is not timed
        found = {name: count for name, count in reply["recompiled"].items() if name != BASELINE}
        again = {seat.candidate(name): count for name, count in found.items()}
        return from_json(Round, reply["rounds"][0]), again

    def _pairs(self, states: Mapping[str, CandidateState]) -> dict[str, tuple[list[float], list[float]]]:
        return pairs_between(self._seats, states)

    def _blame_in(
        self,
        seat: Seat,
        running: str,
        states: Mapping[str, CandidateState],
        status: Status,
        failure: Failure,
    ) -> str:
        """The candidate that is to blame for what happened to this worker; see ``_blame``."""
        here = {name: states[name] for name in (seat.eager, *seat.compilers.values()) if name in states}
        if not here:
            raise _SeatLost(seat, status, failure)
        return self._blame(seat.compilers.get(running, ""), here, f"failed ({failure.kind})")

    def _let_go(self, states: Mapping[str, CandidateState]) -> None:
        """Who has failed, or compiled again and again, is timed no more; nor is a seat without candidates."""
        for seat in self._seats:
            seat.compilers = {k: c for k, c in seat.compilers.items() if c in states}
        self._seats = [s for s in self._seats if s.is_reference or s.eager in states or s.compilers]

    def _finish_all(self, states: dict[str, CandidateState], timing: Timing) -> None:
        """Metrics of a step of each side, whichever environments they are in."""
        of_eager: dict[str, CandidateState] = {}
        for seat in self._seats:
            known = {**timing.warmed.get(id(seat), {}), "iterations_per_sample": self._iterations}
            eager = states.get(seat.eager) or CandidateState(
                status=Status.PASS, parity=None, metrics={}, notes=()
            )
            of_eager[seat.eager] = eager
            mine = {k: states[c] for k, c in seat.compilers.items() if c in states}
            self._finish(seat.asked, {BASELINE: eager, **mine}, known)
        reference = of_eager.get(BASELINE)
        for name, state in of_eager.items():
            if name != BASELINE and reference is not None:
                own = {k: v for k, v in state.metrics.items() if not k.startswith("baseline_")}
                theirs = {k: v for k, v in reference.metrics.items() if k.startswith("baseline_")}
                state.metrics = {**own, **theirs}

    # -- records ------------------------------------------------------------------

    def _record(self, candidate: str, status: Status, notes: tuple[str, ...]) -> Record:
        _, environment = split_candidate(self._job, candidate)
        model, facts = self._facts.get(environment.name) or (None, {})
        return replace(
            super()._record(candidate, status, notes),
            model=model,
            environment=facts,
            env=environment.name,
            env_parity=self._agreement.get(environment.name),
        )

    def _failed(
        self,
        candidate: str,
        status: Status,
        failure: Failure,
        notes: tuple[str, ...],
        state: CandidateState | None = None,
    ) -> Record:
        log = failure.log or self._logs[split_candidate(self._job, candidate)[1].name]
        return super()._failed(candidate, status, replace(failure, log=log), notes, state)

    def _done(self, candidate: str, state: CandidateState) -> Record:
        baseline = baseline_of(self._seats, candidate)
        samples = samples_of(candidate, state.rounds, self._iterations, baseline)
        record = self._record(candidate, state.status, state.notes)
        return replace(with_facts(record, state), samples=samples)
