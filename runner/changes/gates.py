"""``--fail-on``: what in the comparison makes the exit code 1, and the sentence that says why."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from runner.changes.changes import ALPHA, THRESHOLD, Change, Changes
from runner.changes.run import NO_RECORD, Result
from runner.digits import p_text, share_text, speedup_text
from runner.errors import UsageError, unknown
from runner.flag_types import share

WITH_SHARE = ("regression", "time")
KINDS = (*WITH_SHARE, "parity", "graph-breaks", "difference")
FLAG = "--fail-on"


@dataclass(frozen=True, slots=True, kw_only=True)
class Gate:
    """What to fail on. ``threshold``: of ``regression`` and ``time``, a share."""

    kind: str
    threshold: float = THRESHOLD

    @property
    def words(self) -> str:
        return f"{self.kind}:{share_text(self.threshold)}" if self.kind in WITH_SHARE else self.kind


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """A gate's answer: it fails where there are ``cases``."""

    gate: Gate
    title: str
    cases: tuple[str, ...]


FOR_EXPECTED = (Gate(kind="difference"),)
"""What a run is held to beside an expected file, where nothing else is asked for."""


def gates_asked(words: Sequence[str]) -> tuple[Gate, ...]:
    """``regression:5%`` -> a gate. ``UsageError`` for anything else than these words."""
    gates = []
    for word in words:
        kind, colon, limit = word.partition(":")
        if kind not in KINDS:
            raise unknown(FLAG, kind, "kind of change", KINDS)
        if colon and kind not in WITH_SHARE:
            raise UsageError(f"{FLAG}: {kind} has no threshold; write just {kind}")
        gates.append(Gate(kind=kind, threshold=share(FLAG)(limit)) if colon else Gate(kind=kind))
    return tuple(gates)


def outcomes(changes: Changes, gates: Sequence[Gate]) -> tuple[Outcome, ...]:
    """One for each gate. ``UsageError`` where these runs can say nothing on one: silence is no pass."""
    return tuple(JUDGES[gate.kind](changes, gate) for gate in gates)


def _regression(changes: Changes, gate: Gate) -> Outcome:
    if not changes.timed:
        raise _cannot(changes, gate, "no shared result has a speedup in both")
    limit = 1 - gate.threshold
    lost = [
        f"{c.first.title}: {_factor(c)}, q = {p_text(c.q_value)}"
        for c in changes.timed
        if c.speedup and c.q_value is not None and c.q_value < ALPHA and c.speedup.factor < limit
    ]
    title = f"of {len(changes.timed)} speedups, lower by more than {share_text(gate.threshold)}"
    return Outcome(gate=gate, title=title, cases=tuple(lost))


def _time(changes: Changes, gate: Gate) -> Outcome:
    timed = [change for change in changes.changes if change.compiled is not None]
    if not timed:
        raise _cannot(changes, gate, "at least 3 shared models with times in both are needed")
    slower = [
        f"{c.first.title}: {speedup_text(c.compiled.factor, c.compiled.low, c.compiled.high)} of the time"
        for c in timed
        if c.compiled
        and c.compiled_q is not None
        and c.compiled_q < ALPHA
        and c.compiled.factor > 1 + gate.threshold
    ]
    title = (
        f"of {len(timed)} compiled steps, slower beyond the drift by more than {share_text(gate.threshold)}"
    )
    return Outcome(gate=gate, title=title, cases=tuple(slower))


def _parity(changes: Changes, gate: Gate) -> Outcome:
    cases = tuple(ending(change) for change in changes.new_failures)
    return Outcome(gate=gate, title="passed before and fail now", cases=cases)


def _graph_breaks(changes: Changes, gate: Gate) -> Outcome:
    more = [c for c in changes.breaks if (c.second.graph_breaks or 0) > (c.first.graph_breaks or 0)]
    return Outcome(gate=gate, title="more graph breaks than before", cases=tuple(map(broken, more)))


def _difference(changes: Changes, gate: Gate) -> Outcome:
    ended = (*changes.new_failures, *changes.fixed, *changes.other_endings)
    cases = (
        *map(ending, ended),
        *(broken(change) for change in changes.breaks if change not in ended),
        *(f"{m.first.title}: measured in another way ({told(m.differences)})" for m in changes.mismatches),
        *(f"{r.title}: {r.status}, and not in the first" for r in changes.only_second if _counts(r)),
    )
    return Outcome(gate=gate, title="other statuses or graph breaks than before", cases=cases)


def _counts(result: Result) -> bool:
    return result.status is not None and result.status != NO_RECORD


JUDGES: Mapping[str, Callable[[Changes, Gate], Outcome]] = {
    "regression": _regression,
    "time": _time,
    "parity": _parity,
    "graph-breaks": _graph_breaks,
    "difference": _difference,
}


def ending(change: Change) -> str:
    """``suite model (...), inductor: pass -> crash (SIGSEGV)``"""
    why = change.second.failure
    words = re.sub(r"\s+", " ", why)
    note = f" ({words[:120]}{'...' if len(words) > 120 else ''})" if words else ""
    return f"{change.first.title}: {change.first.status or 'pass'} -> {change.second.status or 'pass'}{note}"


def broken(change: Change) -> str:
    return f"{change.first.title}: {change.first.graph_breaks} -> {change.second.graph_breaks} graph breaks"


def told(differences: Sequence[tuple[str, str, str]]) -> str:
    """``batch size 8 -> 4, scale full -> small``"""
    return ", ".join(f"{name} {one} -> {other}" for name, one, other in differences)


def _factor(change: Change) -> str:
    found = change.speedup
    return speedup_text(found.factor, found.low, found.high) if found else ""


def _cannot(changes: Changes, gate: Gate, why: str) -> UsageError:
    if changes.incomparable:
        (name, one, other), _ = changes.incomparable[0]
        why = f"times are not compared, because {name} is {one} in the first and {other} in the second"
    return UsageError(f"{FLAG} {gate.words}: these runs cannot tell ({why})")
