"""``--fail-on``: the gates that make the exit code 1 or, where data leave them open, 3; and the causes.

A gate is an entry of ``KINDS``: how it reads its rows from two runs and, if it can, from one run.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from harness import settings
from harness.schema import COLD, Record
from harness.settings import SHARE, number_text, within
from runner.analysis.digits import estimate_text, p_text, share_text
from runner.analysis.ratios import is_compiled
from runner.analysis.results import COMPILATION, COMPILATIONS, SPEEDUP, STEP, Estimate, Ratio, Result, Summary
from runner.analysis.verdicts import Limits
from runner.errors import UsageError, unknown
from runner.names import plain, reason, where
from runner.plan.config import RunConfig
from runner.plan.environments.spec import split_candidate
from runner.plan.settings import value_of
from runner.runs.compare.changes import NEW_FAILURE, Change, RunChanges

FLAG = "--fail-on"
FACTOR = settings.Kind(within(lambda v: v > 0, "a speedup; write for example speedup:1.4"), number_text)
LONGER, ABOVE = "compilations that take longer", "peaks of memory above eager's"
OF_RUN = "no result that passed has the data for this gate"


@dataclass(frozen=True, slots=True, kw_only=True)
class Gate:
    """A condition for failure. ``threshold``: a share (None: that of the runs), or a speedup."""

    kind: str
    threshold: float | None = None

    @property
    def words(self) -> str:
        return self.kind if self.threshold is None else f"{self.kind}:{KINDS[self.kind].text(self.threshold)}"


@dataclass(frozen=True, slots=True)
class Row:
    """A result. It is a case if it ``fails`` or, with an estimate, if that is beyond the limit."""

    name: str
    text: str
    records: tuple[Record, ...] = field(compare=False)  # of which it is made
    fails: bool = False
    estimate: Estimate | None = None
    q_value: float | None = None

    @property
    def line(self) -> str:
        return f"{self.name}: {self.text}"

    def beyond(self, sign: int, limit: float, alpha: float) -> bool:
        """As with a verdict: the whole 95 % interval is beyond the limit, and parts of the rounds agree."""
        known = self.estimate
        if known is None or known.interval is None:
            return self.fails
        significant = self.q_value is None or self.q_value < alpha
        return significant and min(sign * log for log in (*known.interval, *known.segments)) > limit

    def within(self, sign: int, limit: float) -> bool:
        """Whether the whole 90 % interval is within the limit; what is neither is open."""
        known = self.estimate
        if known is None or known.interval_90 is None:
            return False
        parts = known.segments if known.unsteady else ()
        return max(sign * log for log in (*known.interval_90, *parts)) <= limit


@dataclass(frozen=True, slots=True, kw_only=True)
class GateResult:
    """The result of a gate, which fails if a row has ``failed``; of what is ``unsure``, the data cannot tell.

    ``refuted``: with ``--confirm``, the rows that failed, and not again.
    """

    gate: Gate
    title: str
    rows: tuple[Row, ...]
    failed: tuple[Row, ...]
    unsure: tuple[Row, ...] = ()
    advice: str = ""
    confirmed: str = ""  # how many of those that failed did so again
    refuted: tuple[Row, ...] = ()

    @property
    def cases(self) -> tuple[str, ...]:
        return tuple(row.line for row in self.failed)

    @property
    def open(self) -> tuple[str, ...]:
        return tuple(row.line for row in self.unsure)


@dataclass(frozen=True, slots=True)
class Kind:
    """How a gate reads two runs, with its threshold, and a ``run`` that is measured."""

    title: str  # of the cases, without the threshold
    rows: Callable[[RunChanges, float], Iterable[Row]]
    needs: str = ""  # why there is no row
    value: settings.Kind | None = None  # how the threshold is read; None: it has none
    sign: int = 1  # -1: what is less than the threshold fails
    advice: str = ""
    run: Callable[[Summary, float], Iterable[Row]] | None = None
    run_title: str = ""  # "": as of two runs
    run_needs: str = OF_RUN
    experiment: str = ""  # whose rounds it reads; "": timed processes

    def text(self, threshold: float) -> str:
        return number_text(threshold) if self.value is FACTOR else share_text(threshold)

    def limit(self, threshold: float) -> float:
        """How far a logarithm may go in the direction of ``sign``."""
        if self.value is FACTOR:
            return -math.log(threshold)
        if self.sign > 0:
            return math.log1p(threshold)
        return -math.log1p(-threshold) if threshold < 1 else math.inf


def _ratios(quantity: str) -> Callable[[RunChanges, float], Iterable[Row]]:
    def rows(changes: RunChanges, _: float) -> Iterable[Row]:
        for change in changes.changes:
            if ratio := change.ratios.get(quantity):
                q = ratio.q_value
                how = " of the time" if quantity != SPEEDUP else "" if q is None else f", q = {p_text(q)}"
                text = f"{estimate_text(ratio.estimate)}{how}"
                yield _row(change, text, estimate=ratio.estimate, q_value=q)

    return rows


def _row(change: Change, text: str, fails: bool = False, **judged: Any) -> Row:
    return Row(change.first.title, text, change.records, fails, **judged)


def _second(changes: RunChanges, _: float) -> Iterable[Row]:
    """The speedups of the second run, and what failed."""
    own = [result for result in changes.second.results if not result.is_control]
    lost = (r for r in own if not r.passed and r.record.status.counted)
    yield from (Row(r.title, r.status, (r.record,), fails=True) for r in lost)
    yield from _fast((r.title, r.comparison) for r in own if r.passed)


def _fast(results: Iterable[tuple[str, Result]]) -> Iterable[Row]:
    for name, comparison in results:
        if (estimate := comparison.estimate) is not None:
            yield Row(name, estimate_text(estimate), (comparison.record,), estimate=estimate)


def _larger(changes: RunChanges, share: float) -> Iterable[Row]:
    """Peaks relative to eager's. They are counted."""
    known = [(change, 1 / change.memory_factor) for change in changes.changes if change.memory_factor]
    yield from (_row(change, f"{factor:.2f}x of the memory", factor > 1 + share) for change, factor in known)


def _lost(changes: RunChanges, _: float) -> Iterable[Row]:
    yield from (_row(change, ending(change), change.ending == NEW_FAILURE) for change in changes.every)


def _counts(metric: str, noun: str) -> Kind:
    def changed(changes: RunChanges, _: float) -> Iterable[Row]:
        for change, before, after in changes.counts(metric):
            if not change.first.is_control:
                yield _row(change, f"{before} -> {after} {noun}", after > before)

    def counted(summary: Summary, _: float) -> Iterable[Row]:
        for name, c in _passed(summary):
            if (count := c.number(metric)) is not None:
                yield Row(name, f"{count:.0f} {noun}", (c.record,), bool(count))

    needs = f"no shared result has the number of {noun} in both"
    return Kind(
        f"results with more {noun} than before", changed, needs, run=counted, run_title=f"results with {noun}"
    )


def ending(change: Change) -> str:
    """``pass -> crash (SIGSEGV)``"""
    failure = change.second.record.failure
    note = f" ({reason(' '.join(f'{failure.kind}: {failure.message}'.split()))})" if failure else ""
    return f"{change.first.status} -> {change.second.status}{note}"


def _passed(summary: Summary) -> list[tuple[str, Result]]:
    """Records that did not pass have failed already, and count here for nothing."""
    return [(where(c.record, summary.labels), c) for c in summary.comparisons if c.passed]


def _compiled(summary: Summary, _: float) -> Iterable[Row]:
    yield from _fast((name, c) for name, c in _passed(summary) if is_compiled(c.record))


def _peaks(summary: Summary, share: float) -> Iterable[Row]:
    for name, c in _passed(summary):
        if ratio := c.memory_ratio:
            yield Row(name, f"{1 / ratio:.2f}x of eager's memory", (c.record,), ratio < 1 / (1 + share))


def _cold_starts(summary: Summary, _: float) -> Iterable[Row]:
    """Those of a compiler in an environment that take longer than in the reference environment."""
    for pair in summary.of(COMPILATIONS):
        if pair.other is not None and _same_compiler(pair, pair.other):
            name, text = where(pair.other, summary.labels), f"{estimate_text(pair.estimate)} of the time"
            both = pair.record, pair.other
            yield Row(name, text, both, estimate=pair.estimate, q_value=pair.q_value)


def _same_compiler(pair: Ratio, other: Record) -> bool:
    """Whether the pair is a compiler in the reference environment and in another one, from empty caches."""
    job = pair.record.job
    if other is pair.record or pair.first.start != COLD or not job.environments:
        return False
    first, second = (split_candidate(job, side.candidate) for side in (pair.record, other))
    return first[0] == second[0] and first[1].name == job.environments[0].name


TIMED, BOTH = "no result that passed was timed", "no shared result has a speedup in both runs"
PEAKS = "no shared result has peaks of memory in both"
RUNS = "the gate needs results that both runs compiled several times: --compile-runs"
ENVS = "the gate needs two environments of one run, timed in the same rounds: --envs, and RUN@ENV"
COLD_TWICE = "no compiler has two cold compilations in two environments; measure with more --compile-runs"
NEW_BASE = "take the new run as the base: beside the old one, a later loss looks like none"
OF_STEPS = ("speedup", "memory", "regression", "improvement", "time")
KINDS: dict[str, Kind] = {
    "speedup": Kind("speedups", _second, TIMED, FACTOR, -1, run=_compiled, run_needs=TIMED),
    "regression": Kind("speedups that fell", _ratios(SPEEDUP), BOTH, SHARE, -1),
    "improvement": Kind("speedups that rose", _ratios(SPEEDUP), BOTH, SHARE, advice=NEW_BASE),
    "time": Kind("compiled steps that became slower", _ratios(STEP), ENVS, SHARE),
    "compile": Kind(
        *(LONGER, _ratios(COMPILATION), RUNS, SHARE),
        run=_cold_starts,
        run_needs=COLD_TWICE,
        experiment="compile_runs",
    ),
    "memory": Kind("peaks of memory that grew", _larger, PEAKS, SHARE, run=_peaks, run_title=ABOVE),
    "parity": Kind("results that passed before and fail now", _lost),
    "graph-breaks": _counts("graph_breaks", "graph breaks"),
    "recompiles": _counts("recompiles", "recompilations"),
}


def gates_asked(words: Sequence[str], config: RunConfig | None = None) -> tuple[Gate, ...]:
    """``regression:5%`` -> a gate. ``UsageError`` for unknown words, and for what a run cannot answer."""
    gates = []
    for word in words:
        name, colon, limit = word.partition(":")
        if name not in KINDS:
            raise unknown(FLAG, name, "kind of change", KINDS)
        value = KINDS[name].value
        if colon and value is None:
            raise UsageError(f"{FLAG}: {name} has no threshold; write just {name}")
        asked = value if colon or value is FACTOR else None
        gates.append(Gate(kind=name, threshold=value_of(FLAG, asked, limit) if asked else None))
        if config is not None:
            _check(name, config)
    return tuple(gates)


def _check(name: str, config: RunConfig) -> None:
    if KINDS[name].run is None and len(config.environments) < 2:
        known = ", ".join(name for name, kind in KINDS.items() if kind.run)
        raise UsageError(f"{FLAG}: {name} needs two runs (--compare), or two --envs; a run has {known}")
    if name in OF_STEPS and not config.protocol.performance:
        raise UsageError(f"{FLAG}: {name} is measured in timed steps; leave --accuracy out")
    if name == "compile" and not (len(config.environments) > 1 and config.extras.compile_runs > 1):
        raise UsageError(
            f"{FLAG}: compile compares environments of a run, compiled several times; add two --envs "
            "and --compile-runs=2 or more, or compare two runs with --compare"
        )


def gate_results(
    subject: RunChanges | Summary, gates: Sequence[Gate]
) -> tuple[list[GateResult], list[UsageError]]:
    """The results of the gates for which there are data, and the errors for the others."""
    results, refusals = list[GateResult](), dict[str, UsageError]()
    for gate in gates:
        try:
            results.append(gate_result(subject, gate))
        except UsageError as error:
            refusals[str(error)] = error
    return results, [*refusals.values()]


def gate_result(subject: RunChanges | Summary, gate: Gate) -> GateResult:
    """Raises ``UsageError`` if the runs lack the data for the gate."""
    kind = KINDS[gate.kind]
    if isinstance(subject, RunChanges):
        for run in subject.runs:
            if run.damaged_lines:
                why = "has damaged lines, so results may be missing; measure them again with --resume"
                raise UsageError(f"{FLAG}: {plain(str(run.path))} {why}")
        limits, title, read = subject.limits, kind.title, partial(kind.rows, subject)
    else:
        assert kind.run is not None  # gates_asked has refused the others
        limits = Limits.of(*(comparison.record.job.protocol for comparison in subject.comparisons))
        title, read = kind.run_title or kind.title, partial(kind.run, subject)
    threshold = limits.threshold if gate.threshold is None else gate.threshold
    rows, limit = [*read(threshold)], kind.limit(threshold)
    timed = [row for row in rows if row.estimate is not None]
    if not (timed if kind.value is FACTOR else rows) and (why := _without_data(subject, kind)):
        raise UsageError(f"{FLAG} {gate.words}: {why}")
    failed = [row for row in rows if row.beyond(kind.sign, limit, limits.alpha)]
    if failed and timed and kind.value is SHARE and isinstance(subject, RunChanges):
        _refuse_crowded(subject, gate)
    if kind.value:
        how = "below" if kind.value is FACTOR else "by more than"
        title = f"{title} {how} {kind.text(threshold)}, of {len(timed or rows)}"
    return GateResult(
        gate=gate,
        title=f"results that failed, and {title}" if timed and len(rows) > len(timed) else title,
        rows=tuple(rows),
        failed=tuple(failed),
        unsure=tuple(row for row in timed if row not in failed and not row.within(kind.sign, limit)),
        advice=kind.advice if failed else "",
    )


def _refuse_crowded(changes: RunChanges, gate: Gate) -> None:
    """``UsageError`` for runs beside other work, unless a control shows that it did no harm."""
    controlled = changes.paired or gate.kind == "compile" or any(c.speedup for c in changes.controls)
    if any(changes.crowded) and not controlled:
        raise UsageError(
            f"{FLAG} {gate.words}: other work used the CPUs during these runs, which may be the cause; "
            "measure again on a quiet machine, or with the A/A control in both runs (--compilers=...,eager)"
        )


def _without_data(subject: RunChanges | Summary, kind: Kind) -> str:
    """Why there is no row; "" for a run in which nothing compiled passed: that has failed already."""
    if not isinstance(subject, RunChanges):
        compiled = any(is_compiled(c.record) for _, c in _passed(subject))
        return kind.run_needs if compiled or kind.run_needs != OF_RUN else ""
    why = kind.needs
    if subject.incomparable and kind.value is SHARE:
        (name, first, second), _ = subject.incomparable[0]
        why = f"times are not compared, because {name} is {first} in the first run and {second} in the second"
    return f"these runs do not have the data for this gate ({why})"
