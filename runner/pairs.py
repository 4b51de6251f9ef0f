"""Rounds of several variants, taken apart into one candidate's pairs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from harness.schema import BASELINE, Parity, Round, Samples, Scalar, Status, TensorError


@dataclass(slots=True)
class CandidateState:
    """What is known so far of one candidate in the current session."""

    status: Status
    parity: Parity | None
    metrics: dict[str, Scalar]
    notes: tuple[str, ...]
    rounds: list[Round] = field(default_factory=list)
    recompiling: int = 0
    first_calls_s: tuple[float, ...] = ()


def take_first_calls(states: Mapping[str, CandidateState], reply: Mapping[str, Any]) -> None:
    """What a worker says of the candidates' calls so far; it need not say anything."""
    for candidate, calls in reply.get("first_calls_s", {}).items():
        if candidate in states:
            states[candidate].first_calls_s = tuple(calls)
    for candidate, seconds in reply.get("compilation_latency_s", {}).items():
        if candidate in states:
            states[candidate].metrics["compilation_latency_s"] = seconds


def paired_samples(
    candidate: str, rounds: Sequence[Round], iterations: int, baseline: str = BASELINE
) -> Samples:
    """The candidate's samples beside the baseline's, round by round."""
    return Samples(
        baseline_s=tuple(r.seconds[baseline] for r in rounds),
        candidate_s=tuple(r.seconds[candidate] for r in rounds),
        baseline_position=tuple(r.order.index(baseline) for r in rounds),
        candidate_position=tuple(r.order.index(candidate) for r in rounds),
        baseline_minor_faults=tuple(r.minor_faults[baseline] for r in rounds),
        candidate_minor_faults=tuple(r.minor_faults[candidate] for r in rounds),
        iterations_per_sample=iterations,
        baseline_prefill_s=tuple(r.prefill_s[baseline] for r in rounds if r.prefill_s),
        candidate_prefill_s=tuple(r.prefill_s[candidate] for r in rounds if r.prefill_s),
    )


def pairs_of(states: Mapping[str, CandidateState]) -> dict[str, tuple[list[float], list[float]]]:
    """For each candidate its (baseline seconds, candidate seconds), round by round."""
    return {
        candidate: (
            [r.seconds[BASELINE] for r in state.rounds],
            [r.seconds[candidate] for r in state.rounds],
        )
        for candidate, state in states.items()
    }


def judge_late(states: Mapping[str, CandidateState], changed: Mapping[str, TensorError]) -> None:
    """Takes the pass from every candidate that no longer computes what it did when it was checked.

    From all, where eager itself does not: nobody can then say who is right.
    """
    for candidate, state in states.items():
        error = changed.get(BASELINE) or changed.get(candidate)
        if error is None or not state.status.passed or state.parity is None:
            continue
        drifts = BASELINE in changed
        state.status = Status.EAGER_TWO_RUNS_DIFFER if drifts else Status.FAIL_ACCURACY
        state.notes += (f"{'eager' if drifts else candidate} changed in time: {error.name}: {error.failure}",)
        if not drifts:
            state.parity = replace(state.parity, failed=1, worst=error)
