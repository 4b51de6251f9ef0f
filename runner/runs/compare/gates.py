"""``--fail-on``: the gates that make the exit code 1 or, where data leave them open, 3; and the causes."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

from harness.schema import COLD
from harness.settings import SHARE, Kind, number_text, within
from runner.analysis.digits import estimate_text, p_text, share_text
from runner.analysis.estimate import Estimate
from runner.analysis.statistics import false_discovery
from runner.analysis.verdicts.compiling import by_round, paired_ratio, unpaired_ratio
from runner.errors import UsageError, unknown
from runner.labels import plain, reason
from runner.plan.settings import value_of
from runner.runs.compare.changes import Change, Ending, RunChanges, alike_caches
from runner.runs.compare.run import Difference, Result

FLAG = "--fail-on"
WITH_SHARE = ("regression", "time", "compile", "memory")
FACTOR = Kind(within(lambda value: value > 0, "a speedup; write for example speedup:1.4"), number_text)
COUNTS = {  # gate: metric, its name
    "graph-breaks": ("graph_breaks", "graph breaks"),
    "recompiles": ("recompiles", "recompilations"),
}
KINDS = ("speedup", *WITH_SHARE, "parity", *COUNTS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Gate:
    """A condition for failure. ``threshold``: a share, of the kinds ``WITH_SHARE`` (None: that of the runs),
    or a speedup."""

    kind: str
    threshold: float | None = None

    def share(self, of_the_runs: float) -> float:
        return of_the_runs if self.threshold is None else self.threshold

    @property
    def words(self) -> str:
        if self.threshold is None:
            return self.kind
        text = number_text if self.kind == "speedup" else share_text
        return f"{self.kind}:{text(self.threshold)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class GateResult:
    """The result of a gate, which fails if there are ``cases``.

    ``open``: results of which the data cannot tell whether they are cases.
    """

    gate: Gate
    title: str
    cases: tuple[str, ...]
    open: tuple[str, ...] = ()


def gates_asked(words: Sequence[str]) -> tuple[Gate, ...]:
    """``regression:5%`` -> a gate. Raises ``UsageError`` for unknown words."""
    gates = []
    for word in words:
        kind, colon, limit = word.partition(":")
        if kind not in KINDS:
            raise unknown(FLAG, kind, "kind of change", KINDS)
        if colon and kind not in ("speedup", *WITH_SHARE):
            raise UsageError(f"{FLAG}: {kind} has no threshold; write just {kind}")
        reader = FACTOR if kind == "speedup" else SHARE
        with_threshold = colon or reader is FACTOR
        gates.append(Gate(kind=kind, threshold=value_of(FLAG, reader, limit) if with_threshold else None))
    return tuple(gates)


def gate_results(changes: RunChanges, gates: Sequence[Gate]) -> tuple[list[GateResult], list[UsageError]]:
    """The results of the gates for which the runs have data, and the errors for the others."""
    for run in (changes.first, changes.second):
        if gates and run.damaged_lines:
            why = "has damaged lines, so results may be missing; measure them again with --resume"
            return [], [UsageError(f"{FLAG}: {plain(str(run.path))} {why}")]
    return answered(gates, partial(gate_result, changes))


def answered(
    gates: Sequence[Gate], result_of: Callable[[Gate], GateResult]
) -> tuple[list[GateResult], list[UsageError]]:
    """The results of the gates for which there are data, and the errors for the others."""
    results, refusals = [], []
    for gate in gates:
        try:
            results.append(result_of(gate))
        except UsageError as error:
            refusals.append(error)
    return results, refusals


def gate_result(changes: RunChanges, gate: Gate) -> GateResult:
    """Raises ``UsageError`` if the runs lack the data for the gate."""
    if gate.kind == "memory":
        return _larger(changes, gate)
    if gate.kind in WITH_SHARE:
        return _slower(changes, gate)
    if gate.kind == "speedup":
        own = [r for r in changes.second.results if not r.is_control and not r.skipped]
        fast = slow([(r.title, r.comparison.estimate) for r in own if r.passed], gate)
        lost = tuple(f"{result.title}: {result.status}" for result in own if not result.passed)
        title = f"results that failed, and {fast.title}"
        return replace(fast, title=title if lost else fast.title, cases=(*lost, *fast.cases))
    if gate.kind in COUNTS:
        return _counted(changes, gate)
    cases = tuple(map(ending, changes.ended(Ending.NEW_FAILURE)))
    return GateResult(gate=gate, title="results that passed before and fail now", cases=cases)


def slow(speedups: Sequence[tuple[str, Estimate | None]], gate: Gate) -> GateResult:
    """The results whose whole interval lies below the gate's speedup."""
    known = [(f"{name}: {estimate_text(e)}", e, None) for name, e in speedups if e is not None]
    if not known:
        raise UsageError(f"{FLAG} {gate.words}: no result that passed was timed")
    least = gate.threshold or 1.0
    return beyond(gate, f"speedups below {number_text(least)}, of {len(known)}", known, -math.log(least), -1)


def beyond(
    gate: Gate,
    title: str,
    known: Sequence[tuple[str, Estimate, float | None]],
    limit: float,
    sign: int,
    alpha: float = 1.0,
) -> GateResult:
    """The result of a gate on estimates, each with its line and its q: cases are beyond the limit.

    As with a verdict, the whole 95 % interval of a case is beyond it, and parts of the rounds agree. The
    whole 90 % interval of what passes is within it. The others are open.
    """
    cases, unknown_yet = [], []
    for line, estimate, q_value in known:
        parts = [sign * log for log in estimate.segments]
        ends, ends_90 = ([sign * end for end in i or ()] for i in (estimate.interval, estimate.interval_90))
        if ends and min(*ends, *parts) > limit and (q_value is None or q_value < alpha):
            cases.append(line)
        elif not ends_90 or max(*ends_90, *(parts if estimate.unsteady else ())) > limit:
            unknown_yet.append(line)
    return GateResult(gate=gate, title=title, cases=tuple(cases), open=tuple(unknown_yet))


def _slower(changes: RunChanges, gate: Gate) -> GateResult:
    """The results whose whole interval lies beyond the share, and whose change is significant."""
    share = gate.share(changes.limits.threshold)
    limit, sign = math.log1p(share), 1
    if gate.kind == "time":
        what = "compiled steps that became slower"
        why = "the gate needs two environments of one run, timed in the same rounds: --envs, and RUN@ENV"
        estimates = [c.factors.compiled for c in changes.changes]
    elif gate.kind == "compile":
        what = "compilations that take longer"
        why = "the gate needs results that both runs compiled several times: --compile-runs"
        estimates = [compile_change(c.first, c.second) for c in changes.changes]
    else:
        what, why = "speedups that fell", "no shared result has a speedup in both runs"
        estimates = [c.speedup for c in changes.changes]
        limit, sign = -math.log1p(-share) if share < 1 else math.inf, -1
    q_values = false_discovery([estimate.p_value if estimate else None for estimate in estimates])
    every = zip(changes.changes, estimates, q_values, strict=True)
    known = [
        (
            f"{c.first.title}: {estimate_text(e)}" + (" of the time" if sign > 0 else f", q = {p_text(q)}"),
            e,
            q,
        )
        for c, e, q in every
        if e is not None and q is not None
    ]
    if not known:
        raise _cannot(changes, gate, why)
    title = f"{what} by more than {share_text(share)}, of {len(known)}"
    result = beyond(gate, title, known, limit, sign, changes.limits.alpha)
    controlled = changes.paired or gate.kind == "compile" or any(c.speedup for c in changes.controls)
    if result.cases and not controlled and any(changes.crowded):
        raise UsageError(
            f"{FLAG} {gate.words}: other work used the CPUs during these runs, which may be the cause; "
            "measure again on a quiet machine, or with the A/A control in both runs (--compilers=...,eager)"
        )
    return result


def compile_change(first: Result, second: Result) -> Estimate | None:
    """ln(time of compiling in the second / first), of cold starts or of caches in the same state.

    Environments of a run compile in the same rounds, so their times are paired; two runs are not.
    """
    if not (first.passed and second.passed):
        return None
    before, after = (by_round(side.record, COLD) for side in (first, second))
    if first.shares is not None and first.shares == second.shares:
        return paired_ratio(after, before)
    if not (before and after) and not alike_caches((first, second)):
        return None
    return unpaired_ratio(first.comparison.compilations_s, second.comparison.compilations_s)


def _larger(changes: RunChanges, gate: Gate) -> GateResult:
    """The results whose peak of memory, relative to eager's, grew by more than the share. It is counted."""
    share = gate.share(changes.limits.threshold)
    known = [(c, 1 / c.memory_factor) for c in changes.changes if c.memory_factor]
    if not known:
        raise _cannot(changes, gate, "no shared result has peaks of memory in both")
    cases = [f"{c.first.title}: {factor:.2f}x of the memory" for c, factor in known if factor > 1 + share]
    title = f"peaks of memory that grew by more than {share_text(share)}, of {len(known)}"
    return GateResult(gate=gate, title=title, cases=tuple(cases))


def _counted(changes: RunChanges, gate: Gate) -> GateResult:
    """The results whose count became worse. ``UsageError`` if no shared result has it in both runs."""
    metric, noun = COUNTS[gate.kind]
    counts = [(c, before, after) for c, before, after in changes.counts(metric) if not c.first.is_control]
    if not counts:
        raise _without_data(gate, f"no shared result has the number of {noun} in both")
    cases = tuple(
        f"{change.first.title}: {before} -> {after} {noun}"
        for change, before, after in counts
        if after > before
    )
    return GateResult(gate=gate, title=f"results with more {noun} than before", cases=cases)


def ending(change: Change) -> str:
    """``suite model (...), inductor: pass -> crash (SIGSEGV)``"""
    failure = change.second.record.failure
    note = f" ({reason(' '.join(f'{failure.kind}: {failure.message}'.split()))})" if failure else ""
    return f"{change.first.title}: {change.first.status} -> {change.second.status}{note}"


def breaks(changes: RunChanges, besides: Sequence[Change] = ()) -> list[str]:
    """The results whose number of graph breaks changed."""
    return [
        f"{change.first.title}: {before} -> {after} graph breaks"
        for change, before, after in changes.counts("graph_breaks")
        if before != after and change not in besides
    ]


def differences_text(differences: Sequence[Difference]) -> str:
    """``batch size 8 -> 4, scale full -> small``"""
    return plain(", ".join(f"{name} {first} -> {second}" for name, first, second in differences))


def _cannot(changes: RunChanges, gate: Gate, why: str) -> UsageError:
    if changes.incomparable:
        (name, first, second), _ = changes.incomparable[0]
        why = f"times are not compared, because {name} is {first} in the first run and {second} in the second"
    return _without_data(gate, why)


def _without_data(gate: Gate, why: str) -> UsageError:
    return UsageError(f"{FLAG} {gate.words}: these runs do not have the data for this gate ({why})")
