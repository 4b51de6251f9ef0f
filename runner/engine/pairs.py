"""The rounds of a job, timed by one worker or by several in turns, and each candidate's pairs."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

from harness.backends.settings.candidates import compiler_of
from harness.devices import of
from harness.schema import BASELINE, STOPPED, WHOLE, Job, Protocol, Round, Samples, Scalar
from runner.analysis.verdicts.between import ASSUMED_ACROSS, assumed_in
from runner.engine import JobContext, Pairs
from runner.engine.replies import Measured
from runner.engine.stopping import Decision, decide
from runner.engine.worker_session import CandidateState, WorkerSession


class PairedRounds:
    """The timed rounds of a job, in the session of one worker or of several environment workers.

    A single worker times many rounds per call. Several workers take turns: a round of the job is one
    round of each worker, in a recorded random order. Only one worker runs at a time.

    ``states``: of the candidates that have not failed; whoever finds a failure removes it. A candidate that
    needs no further round leaves the rounds, unless another one has its compiler with other settings. It does
    not leave the states: it is looked at again when the job ends.
    ``prepared_s``: the time before the rounds, of a process that pursues a verdict.
    """

    def __init__(
        self,
        job: Job,
        sessions: Sequence[WorkerSession],
        states: Mapping[str, CandidateState],
        context: JobContext,
        prepared_s: float,
    ) -> None:
        self._job = job
        self._sessions = list(sessions)
        self._states = states
        self._context = context
        self._prepared_s = prepared_s
        self._pace = of(job.device).pace
        self._iterations = 1
        self._began = 0.0
        self._number = 0  # of the next round

    @property
    def timed(self) -> dict[str, CandidateState]:
        """Of the candidates that need further rounds."""
        return {name: state for name, state in self._states.items() if not state.rounds_ended}

    @property
    def fewest(self) -> int:
        """The rounds of the candidate with the fewest."""
        return min((len(state.rounds) for state in self.timed.values()), default=0)

    @property
    def _hurries(self) -> bool:
        return self._pace.hurries and self._context.stop()

    def warm_up(self) -> None:
        """Warms up the sessions that are not warm yet; then fixes one number of steps per sample for all."""
        for session in self._sessions:
            if session.warmed is None:
                session.warm_up({name: self._states[name] for name in session.compilers.values()})
                self._began = self._context.clock()
            known = (session.warmed or {}).get("iterations_per_sample")
            self._iterations = max(self._iterations, int(known or 1))

    def go_on(self, batch: Measured) -> bool:
        """Adds further rounds to the batch, or ends the timing; whether it goes on."""
        decision, timed = self._decided(), self.timed
        if decision.again:
            for state in timed.values():  # what settles late has settled now
                state.notes += (f"measured again after {len(state.rounds)} rounds: {decision.again}",)
                state.measured_again = True
                state.rounds.clear()
            return True
        stopped = self._context.stop() and self.fewest > 0
        if not decision.rounds or stopped:
            for state in timed.values():
                state.rounds_ended = STOPPED if decision.rounds else decision.reason
                if decision.rounds:
                    state.notes += (f"stopped after {len(state.rounds)} rounds",)
            return False
        if not self._job.environments:  # whose workers take turns with all candidates
            compilers = Counter(map(compiler_of, timed))
            for candidate, reason in decision.ended.items():
                if compilers[compiler_of(candidate)] == 1:  # others have other settings: they are its pairs
                    timed[candidate].rounds_ended = reason
        self._measure(decision, batch)
        return True

    def _decided(self) -> Decision:
        timed, pairs = self.timed, self.pairs()
        tau = {
            name: assumed_in(self._job, name, baseline_s) if name in timed else ASSUMED_ACROSS
            for name, (baseline_s, _) in pairs.items()
        }
        decision = decide(
            self._job.protocol,
            pairs,
            self._context.clock() - self._began,
            tau,
            again=not self._hurries and not any(state.measured_again for state in timed.values()),
            pace=self._pace,
            prepared_s=self._prepared_s,
        )
        return replace(decision, within_s=0.0) if self._hurries else decision  # one round

    def _measure(self, decision: Decision, batch: Measured) -> None:
        """Adds the decided rounds to the batch, or fewer if the time ends."""
        if not self._job.environments:
            (session,) = self._sessions
            resting = self._states.keys() - self.timed.keys()
            timed = session.measure(resting, rounds=decision.rounds, within_s=decision.within_s)
            rounds = tuple(replace(r, index=index) for index, r in enumerate(timed.rounds, self._number))
            batch.add(replace(timed, rounds=rounds))
            self._number += len(rounds)
            return
        began = self._context.clock()
        while len(batch.rounds) < decision.rounds:
            if batch.rounds and self._context.clock() - began > decision.within_s:
                return
            turns: list[Round] = []
            for session in turn_order(self._sessions, self._job.protocol, self._number):
                turn = session.measure(iterations=self._iterations)
                turns += turn.rounds
                batch.add(replace(turn, rounds=()))
            batch.rounds += (joined(turns, self._number),)
            self._number += 1

    def keep_only(self) -> None:
        """Drops the candidates that have failed, and the sessions that then have no candidate."""
        for session in self._sessions:
            session.compilers = {k: c for k, c in session.compilers.items() if c in self._states}
        self._sessions = [
            session
            for session in self._sessions
            if session.part.is_reference or session.part.eager in self._states or session.compilers
        ]

    def pairs(self) -> Pairs:
        """Of each candidate that needs further rounds, with its baseline and with the reference's eager."""
        pairs = {}
        for candidate, state in self.timed.items():
            own = self._baseline(candidate)
            pairs[candidate] = columns(state.rounds, own, candidate)
            if own != BASELINE and any(session.part.is_reference for session in self._sessions):
                pairs[f"{candidate} against {BASELINE}"] = columns(state.rounds, BASELINE, candidate)
        return pairs

    def finish(self) -> None:
        """Sets every candidate's samples, and the step metrics of the candidate and of its baseline."""
        states = self._states
        metrics: dict[str, dict[str, dict[str, Scalar]]] = {}
        for session in self._sessions:  # the reference environment's is the first
            names = {BASELINE: session.part.eager, **session.compilers}
            variants = {variant: states[name] for variant, name in names.items() if name in states}
            numbers = metrics[session.part.eager] = session.finish(variants, soon=self._hurries)
            known = {**(session.warmed or {}), "iterations_per_sample": self._iterations}
            for variant, state in variants.items():
                # the baseline of another environment's eager is the reference's eager
                against = metrics.get(BASELINE, numbers) if variant == BASELINE else numbers
                state.metrics |= {
                    **known,
                    **{f"baseline_{name}": value for name, value in against.get(BASELINE, {}).items()},
                    **{f"candidate_{name}": value for name, value in numbers.get(variant, {}).items()},
                    **numbers.get(WHOLE, {}),
                }
        for candidate, state in states.items():
            if state.rounds:
                state.samples = self._samples(candidate, state.rounds)

    def _samples(self, candidate: str, rounds: Sequence[Round]) -> Samples:
        """The candidate's and its baseline's samples, one of each per round.

        With several environments, also those of the reference's eager, unless the reference failed.
        """
        baseline = self._baseline(candidate)
        known = self._job.environments and all(BASELINE in r.seconds for r in rounds)
        reference = rounds if known else ()
        return Samples(
            baseline_s=tuple(r.seconds[baseline] for r in rounds),
            candidate_s=tuple(r.seconds[candidate] for r in rounds),
            baseline_position=tuple(r.order.index(baseline) for r in rounds),
            candidate_position=tuple(r.order.index(candidate) for r in rounds),
            baseline_minor_faults=tuple(r.minor_faults[baseline] for r in rounds),
            candidate_minor_faults=tuple(r.minor_faults[candidate] for r in rounds),
            iterations_per_sample=self._iterations,
            baseline_prefill_s=tuple(r.prefill_s[baseline] for r in rounds if r.prefill_s),
            candidate_prefill_s=tuple(r.prefill_s[candidate] for r in rounds if r.prefill_s),
            round_index=tuple(r.index for r in rounds),
            reference_s=tuple(r.seconds[BASELINE] for r in reference),
            reference_position=tuple(r.order.index(BASELINE) for r in reference),
        )

    def _baseline(self, candidate: str) -> str:
        """The eager of the candidate's environment, or the reference's if the candidate is eager itself."""
        parts = (session.part for session in self._sessions if candidate in session.part.compilers.values())
        return next((part.eager for part in parts), BASELINE)


def turn_order(sessions: Sequence[WorkerSession], protocol: Protocol, index: int) -> list[WorkerSession]:
    """The order of round ``index``: as in ``round_order``, a permutation and its reverse."""
    order = list(sessions)
    random.Random(f"{protocol.seed}/environments/{protocol.process}/{index // 2}").shuffle(order)
    return order[::-1] if index % 2 else order


def joined(turns: Sequence[Round], index: int) -> Round:
    """One round that contains all turns in the order in which they ran."""
    return Round(
        order=tuple(variant for turn in turns for variant in turn.order),
        seconds={name: value for turn in turns for name, value in turn.seconds.items()},
        minor_faults={name: value for turn in turns for name, value in turn.minor_faults.items()},
        prefill_s={name: value for turn in turns for name, value in turn.prefill_s.items()},
        index=index,
    )


def columns(rounds: Sequence[Round], baseline: str, candidate: str) -> tuple[list[float], list[float]]:
    return [r.seconds[baseline] for r in rounds], [r.seconds[candidate] for r in rounds]
