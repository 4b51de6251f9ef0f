"""Who takes part in a round of several environments, and what a round of all of them is.

A *seat* is one worker: an environment with its eager and its compilers. Every round
asks each seat for one round of its own, in an order that is random and kept.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from harness.schema import (
    BASELINE,
    Environment,
    Failure,
    Job,
    Protocol,
    Round,
    Samples,
    Scalar,
    Status,
    of_environment,
)
from runner.calls import Calls
from runner.environments.plan import EAGER, split_candidate
from runner.pairs import CandidateState, paired_samples


@dataclass(slots=True)
class Seat:
    """One environment's worker.

    ``eager`` is what its eager is called in rounds: the baseline of all for the reference,
    else the candidate that its record is of. ``compilers`` gives each compiler's candidate.
    """

    environment: Environment
    eager: str
    compilers: dict[str, str] = field(default_factory=dict)
    calls: Calls | None = None

    @property
    def is_reference(self) -> bool:
        return self.eager == BASELINE

    @property
    def asked(self) -> Calls:
        assert self.calls is not None
        return self.calls

    def candidate(self, variant: str) -> str:
        """What the worker's variant is called among all."""
        return self.eager if variant == BASELINE else self.compilers[variant]


def seats_for(job: Job, candidates: Sequence[str]) -> list[Seat]:
    """The seats that these candidates need: the reference's first, whether or not it has a candidate.

    The reference's eager as a candidate is a second process of it.
    """
    reference = Seat(environment=job.environments[0], eager=BASELINE)
    control: list[Seat] = []
    others: dict[str, Seat] = {}
    for candidate in candidates:
        compiler, environment = split_candidate(job, candidate)
        if environment.name == reference.environment.name:
            if compiler == EAGER:
                control.append(Seat(environment=environment, eager=candidate))
            else:
                reference.compilers[compiler] = candidate
            continue
        seat = others.setdefault(
            environment.name,
            Seat(environment=environment, eager=of_environment(EAGER, environment.name)),
        )
        if compiler != EAGER:
            seat.compilers[compiler] = candidate
    return [reference, *control, *others.values()]


def seat_order(seats: Sequence[Seat], protocol: Protocol, index: int) -> list[Seat]:
    """The order of the seats in round ``index``: uniform over permutations, the same for seed and process."""
    order = list(seats)
    random.Random(f"{protocol.seed}/environments/{protocol.process}/{index}").shuffle(order)
    return order


def joined(parts: Sequence[tuple[Seat, Round]], index: int) -> Round:
    """The rounds of all seats, in the order in which they ran, as one: positions count over all of them."""
    order: list[str] = []
    columns: tuple[dict[str, float], ...] = ({}, {}, {})
    for seat, one in parts:
        order += [seat.candidate(variant) for variant in one.order]
        for column, found in zip(columns, (one.seconds, one.minor_faults, one.prefill_s), strict=True):
            column.update({seat.candidate(variant): value for variant, value in found.items()})
    seconds, faults, prefill = columns
    return Round(order=tuple(order), seconds=seconds, minor_faults=faults, prefill_s=prefill, index=index)


def baseline_of(seats: Sequence[Seat], candidate: str) -> str:
    """What a candidate is held against: its own environment's eager, or the reference's if it is eager."""
    return next((seat.eager for seat in seats if candidate in seat.compilers.values()), BASELINE)


def samples_of(candidate: str, rounds: Sequence[Round], iterations: int, baseline: str) -> Samples | None:
    """The candidate's pairs, and the reference environment's eager of the same rounds beside them.

    None without rounds.
    """
    if not rounds:
        return None
    samples = paired_samples(candidate, rounds, iterations, baseline)
    known = all(BASELINE in one.seconds for one in rounds)  # else it could not run the model
    return replace(
        samples,
        reference_s=tuple(one.seconds[BASELINE] for one in rounds) if known else (),
        reference_position=tuple(one.order.index(BASELINE) for one in rounds) if known else (),
        round_index=tuple(one.index for one in rounds),
    )


def pairs_between(
    seats: Sequence[Seat], states: Mapping[str, CandidateState]
) -> dict[str, tuple[list[float], list[float]]]:
    """For each candidate its pairs with its own baseline, and with the reference environment's eager."""
    found = {}
    for candidate, state in states.items():
        own = baseline_of(seats, candidate)
        found[candidate] = _columns(state, own, candidate)
        if own != BASELINE and any(seat.is_reference for seat in seats):
            found[f"{candidate} against {BASELINE}"] = _columns(state, BASELINE, candidate)
    return found


def _columns(state: CandidateState, baseline: str, candidate: str) -> tuple[list[float], list[float]]:
    rounds = state.rounds
    return [one.seconds[baseline] for one in rounds], [one.seconds[candidate] for one in rounds]


@dataclass(frozen=True, slots=True, kw_only=True)
class Trouble:
    """Why an environment cannot run the job: its own failure."""

    status: Status
    failure: Failure


@dataclass(slots=True)
class Timing:
    """Where timing stands: the rounds of this batch, who is asked, what each warm-up gave (by ``id``)."""

    rounds: list[Round] = field(default_factory=list)
    recompiled: dict[str, int] = field(default_factory=dict)
    warmed: dict[int, dict[str, Scalar]] = field(default_factory=dict)
    seat: Seat | None = None
    began: float = 0.0
    number: int = 0  # of the next round
    over: bool = False

    @property
    def seat_asked(self) -> Seat:
        assert self.seat is not None
        return self.seat
