"""The rounds of a job, timed by one worker or by several in turns, and each candidate's pairs."""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace

from harness.schema import BASELINE, WHOLE, Job, Protocol, Round, Samples, Scalar
from runner.engine import Pairs
from runner.engine.replies import Measured
from runner.engine.stopping import Decision
from runner.engine.worker_session import CandidateState, WorkerSession


class PairedRounds:
    """The timed rounds of a job, in the session of one worker or of several environment workers.

    A single worker times many rounds per call. Several workers take turns: a round of the job is one
    round of each worker, in a recorded random order. Only one worker runs at a time.
    """

    def __init__(self, job: Job, sessions: Sequence[WorkerSession], clock: Callable[[], float]) -> None:
        self.sessions = list(sessions)
        self.iterations = 1
        self._job = job
        self._clock = clock
        self._began = 0.0
        self._number = 0  # of the next round

    @property
    def elapsed_s(self) -> float:
        """Seconds since the warm-up."""
        return self._clock() - self._began

    def warm_up(self, states: Mapping[str, CandidateState]) -> None:
        """Warms up the sessions that are not warm yet; then fixes one number of steps per sample for all."""
        for session in self.sessions:
            if session.warmed is None:
                session.warm_up({candidate: states[candidate] for candidate in session.compilers.values()})
                self._began = self._clock()
            known = (session.warmed or {}).get("iterations_per_sample")
            self.iterations = max(self.iterations, int(known or 1))

    def measure(self, decision: Decision, batch: Measured, resting: Collection[str] = ()) -> None:
        """Adds the decided rounds to the batch, or fewer if the time ends.

        ``resting``: candidates that are not timed. The workers of several environments time all.
        """
        if not self._job.environments:
            (session,) = self.sessions
            timed = session.measure(resting, rounds=decision.rounds, within_s=decision.within_s)
            rounds = tuple(replace(r, index=index) for index, r in enumerate(timed.rounds, self._number))
            batch.add(replace(timed, rounds=rounds))
            self._number += len(rounds)
            return
        began = self._clock()
        while len(batch.rounds) < decision.rounds:
            if batch.rounds and self._clock() - began > decision.within_s:
                return
            turns: list[Round] = []
            for session in turn_order(self.sessions, self._job.protocol, self._number):
                turn = session.measure(iterations=self.iterations)
                turns += turn.rounds
                batch.add(replace(turn, rounds=()))
            batch.rounds += (joined(turns, self._number),)
            self._number += 1

    def keep_only(self, states: Mapping[str, CandidateState]) -> None:
        """Drops the candidates that are not in ``states``, and the sessions that then have no candidate."""
        for session in self.sessions:
            session.compilers = {k: c for k, c in session.compilers.items() if c in states}
        self.sessions = [
            session
            for session in self.sessions
            if session.part.is_reference or session.part.eager in states or session.compilers
        ]

    def pairs(self, states: Mapping[str, CandidateState]) -> Pairs:
        """Each candidate's pairs with its baseline, and with the reference's eager if that differs."""
        pairs = {}
        for candidate, state in states.items():
            own = self._baseline(candidate)
            pairs[candidate] = columns(state.rounds, own, candidate)
            if own != BASELINE and any(session.part.is_reference for session in self.sessions):
                pairs[f"{candidate} against {BASELINE}"] = columns(state.rounds, BASELINE, candidate)
        return pairs

    def finish(self, states: Mapping[str, CandidateState], *, soon: bool = False) -> None:
        """Sets every candidate's samples, and the step metrics of the candidate and of its baseline.

        ``soon``: as ``WorkerSession.finish``.
        """
        metrics: dict[str, dict[str, dict[str, Scalar]]] = {}
        for session in self.sessions:  # the reference environment's is the first
            names = {BASELINE: session.part.eager, **session.compilers}
            variants = {variant: states[name] for variant, name in names.items() if name in states}
            numbers = metrics[session.part.eager] = session.finish(variants, soon=soon)
            known = {**(session.warmed or {}), "iterations_per_sample": self.iterations}
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
            iterations_per_sample=self.iterations,
            baseline_prefill_s=tuple(r.prefill_s[baseline] for r in rounds if r.prefill_s),
            candidate_prefill_s=tuple(r.prefill_s[candidate] for r in rounds if r.prefill_s),
            round_index=tuple(r.index for r in rounds),
            reference_s=tuple(r.seconds[BASELINE] for r in reference),
            reference_position=tuple(r.order.index(BASELINE) for r in reference),
        )

    def _baseline(self, candidate: str) -> str:
        """The eager of the candidate's environment, or the reference's if the candidate is eager itself."""
        parts = (session.part for session in self.sessions if candidate in session.part.compilers.values())
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
