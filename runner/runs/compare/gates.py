"""``--fail-on``: the gates that make the exit code 1, and the sentences on the cause."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from harness.settings import SHARE
from runner.analysis.digits import MISSING, p_text, share_text, speedup_text
from runner.analysis.estimate import Estimate, Interval
from runner.errors import UsageError, unknown
from runner.labels import plain
from runner.plan.settings import value_of
from runner.runs.compare.changes import Change, Ending, RunChanges

WITH_SHARE = ("regression", "time")
FLAG = "--fail-on"
COUNTS = {  # gate: metric, its name, whether more is worse
    "graph-breaks": ("graph_breaks", "graph breaks", True),
    # with as many breaks, fewer calls mean that a part of the model runs eager
    "calls-captured": ("calls_captured", "captured calls", False),
    "eager-fallbacks": ("eager_fallbacks", "eager fallbacks", True),
}
KINDS = (*WITH_SHARE, "parity", *COUNTS, "difference")


@dataclass(frozen=True, slots=True, kw_only=True)
class Gate:
    """A condition for failure. ``threshold``: of ``regression`` and ``time``; None: that of the runs."""

    kind: str
    threshold: float | None = None

    def share(self, changes: RunChanges) -> float:
        return changes.limits.threshold if self.threshold is None else self.threshold

    @property
    def words(self) -> str:
        return self.kind if self.threshold is None else f"{self.kind}:{share_text(self.threshold)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class GateResult:
    """The result of a gate, which fails if there are ``cases``."""

    gate: Gate
    title: str
    cases: tuple[str, ...]


def gates_asked(words: Sequence[str]) -> tuple[Gate, ...]:
    """``regression:5%`` -> a gate. Raises ``UsageError`` for unknown words."""
    gates = []
    for word in words:
        kind, colon, limit = word.partition(":")
        if kind not in KINDS:
            raise unknown(FLAG, kind, "kind of change", KINDS)
        if colon and kind not in WITH_SHARE:
            raise UsageError(f"{FLAG}: {kind} has no threshold; write just {kind}")
        gates.append(Gate(kind=kind, threshold=value_of(FLAG, SHARE, limit)) if colon else Gate(kind=kind))
    return tuple(gates)


def gate_results(changes: RunChanges, gates: Sequence[Gate]) -> tuple[GateResult, ...]:
    """One result for each gate. Raises ``UsageError`` if the runs lack the data for a gate."""
    for run in (changes.first, changes.second):
        if gates and run.damaged_lines:
            raise UsageError(
                f"{FLAG}: {plain(str(run.path))} has damaged lines, so results may be missing; measure them "
                "again with --resume"
            )
    return tuple(JUDGES[gate.kind](changes, gate) for gate in gates)


def answered(changes: RunChanges, gates: Sequence[Gate]) -> tuple[tuple[GateResult, ...], UsageError | None]:
    """The results of the gates for which the runs have data, and the error for the first other gate."""
    results: list[GateResult] = []
    refusals: list[UsageError] = []
    for gate in gates:
        try:
            results += gate_results(changes, (gate,))
        except UsageError as error:
            refusals.append(error)
    return tuple(results), refusals[0] if refusals else None


def _regression(changes: RunChanges, gate: Gate) -> GateResult:
    if not changes.timed:
        raise _cannot(changes, gate, "no shared result has a speedup in both runs")
    share = gate.share(changes)
    limit = math.log1p(-share) if share < 1 else -math.inf
    cases = tuple(
        f"{change.first.title}: {estimate_text(change.speedup)}, q = {p_text(change.q_value)}"
        for change in changes.timed
        if change.q_value is not None
        if _interval(changes, change.speedup, change.q_value)[1] < limit
    )
    _check_noise(changes, gate, bool(cases))
    title = f"speedups that fell by more than {share_text(share)}, of {len(changes.timed)}"
    return GateResult(gate=gate, title=title, cases=cases)


def _time(changes: RunChanges, gate: Gate) -> GateResult:
    share = gate.share(changes)
    timed = [change for change in changes.changes if change.compiled is not None]
    if not timed:
        raise _cannot(changes, gate, "the gate needs at least 3 shared models with times in both runs")
    cases = tuple(
        f"{change.first.title}: {estimate_text(change.compiled)} of the time"
        for change in timed
        if _interval(changes, change.compiled, change.compiled_q)[0] > math.log1p(share)
    )
    _check_noise(changes, gate, bool(cases))
    beyond = "" if changes.paired else " beyond the drift"
    title = f"compiled steps that became slower{beyond} by more than {share_text(share)}, of {len(timed)}"
    return GateResult(gate=gate, title=title, cases=cases)


def _interval(changes: RunChanges, estimate: Estimate | None, q_value: float | None) -> Interval:
    """The interval of a significant change; everything if the change is not significant."""
    if estimate is None or estimate.interval is None or q_value is None or q_value >= changes.limits.alpha:
        return -math.inf, math.inf
    return estimate.interval


def _check_noise(changes: RunChanges, gate: Gate, fails: bool) -> None:
    """``UsageError`` if the gate would fail, but other work may be the cause, and there is no control."""
    controlled = changes.noise is not None and changes.noise.source == "controls"
    if fails and not controlled and any(changes.crowded):
        raise UsageError(
            f"{FLAG} {gate.words}: other work used the CPUs during these runs, which may be the cause; "
            "measure again on a quiet machine, or with the A/A control in both runs (--compilers=...,eager)"
        )


def _parity(changes: RunChanges, gate: Gate) -> GateResult:
    cases = tuple(ending(change) for change in changes.ended(Ending.NEW_FAILURE))
    return GateResult(gate=gate, title="results that passed before and fail now", cases=cases)


def _counted(changes: RunChanges, gate: Gate) -> GateResult:
    """The results whose count became worse. ``UsageError`` if no shared result has it in both runs."""
    metric, noun, more_is_worse = COUNTS[gate.kind]
    counts = [(c.first.title, c.first.count(metric), c.second.count(metric)) for c in changes.changes]
    known = [(title, a, b) for title, a, b in counts if a is not None and b is not None]
    if not known:
        raise _cannot(changes, gate, f"no shared result has the number of {noun} in both", machine=False)
    worse = tuple(
        f"{title}: {before} -> {after} {noun}"
        for title, before, after in known
        if (after > before if more_is_worse else after < before)
    )
    title = f"results with {'more' if more_is_worse else 'fewer'} {noun} than before"
    return GateResult(gate=gate, title=title, cases=worse)


def _difference(changes: RunChanges, gate: Gate) -> GateResult:
    ended = [
        change for how in (Ending.NEW_FAILURE, Ending.FIXED, Ending.OTHER) for change in changes.ended(how)
    ]
    cases = (
        *map(ending, ended),
        *(broken(change) for change in changes.breaks if change not in ended),
        *(
            f"{m.first.title}: measured under other conditions ({differences_text(m.differences)})"
            for m in changes.mismatches
        ),
        *(f"{r.title}: {r.status}, only in the second run" for r in changes.only_second),
    )
    return GateResult(gate=gate, title="results with another status or number of graph breaks", cases=cases)


JUDGES: Mapping[str, Callable[[RunChanges, Gate], GateResult]] = {
    "regression": _regression,
    "time": _time,
    "parity": _parity,
    **dict.fromkeys(COUNTS, _counted),
    "difference": _difference,
}


def ending(change: Change) -> str:
    """``suite model (...), inductor: pass -> crash (SIGSEGV)``"""
    words = re.sub(r"\s+", " ", change.second.failure or "")
    note = f" ({words[:120]}{'...' if len(words) > 120 else ''})" if words else ""
    return f"{change.first.title}: {change.first.status} -> {change.second.status}{note}"


def estimate_text(estimate: Estimate | None) -> str:
    return MISSING if estimate is None else speedup_text(estimate.factor, estimate.low, estimate.high)


def broken(change: Change) -> str:
    return f"{change.first.title}: {change.first.graph_breaks} -> {change.second.graph_breaks} graph breaks"


def differences_text(differences: Sequence[tuple[str, str, str]]) -> str:
    """``batch size 8 -> 4, scale full -> small``"""
    return ", ".join(f"{name} {first} -> {second}" for name, first, second in differences)


def _cannot(changes: RunChanges, gate: Gate, why: str, *, machine: bool = True) -> UsageError:
    if changes.incomparable and machine:
        (name, first, second), _ = changes.incomparable[0]
        why = f"times are not compared, because {name} is {first} in the first run and {second} in the second"
    return UsageError(f"{FLAG} {gate.words}: these runs do not have the data for this gate ({why})")
