"""``--fail-on`` of a run that is measured: gates that need no other run."""

from __future__ import annotations

import math
from collections.abc import Sequence

from harness.schema import COLD
from runner.analysis.digits import estimate_text, share_text
from runner.analysis.estimate import Limits
from runner.analysis.results import COMPILATIONS, Ratio, Summary
from runner.analysis.verdicts.family import is_compiled
from runner.errors import UsageError
from runner.labels import where
from runner.plan.config import RunConfig
from runner.plan.environments.spec import split_candidate
from runner.runs.compare.gates import COUNTS, FLAG, Gate, GateResult, beyond, gates_asked, slow

KINDS = ("speedup", "compile", "memory", *COUNTS)


def gates_of_run(words: Sequence[str], config: RunConfig) -> tuple[Gate, ...]:
    """``UsageError`` for a gate that this run cannot answer."""
    gates, compares = gates_asked(words), len(config.environments) > 1 and config.extras.compile_runs > 1
    for gate in gates:
        if gate.kind not in KINDS:
            raise UsageError(f"{FLAG}: {gate.kind} needs two runs (--compare); a run has {', '.join(KINDS)}")
        if gate.kind in ("speedup", "memory") and not config.protocol.performance:
            raise UsageError(f"{FLAG}: {gate.kind} is measured in timed steps; leave --accuracy out")
        if gate.kind == "compile" and not compares:
            raise UsageError(
                f"{FLAG}: compile compares environments of a run, compiled several times; add two --envs "
                "and --compile-runs=2 or more, or compare two runs with --compare"
            )
    return gates


def run_result(summary: Summary, gate: Gate) -> GateResult:
    """The result of one gate. Records that did not pass have failed already, and count here for nothing.

    ``UsageError`` if the run lacks the data for a gate.
    """
    if gate.kind == "speedup":
        own = [c for c in summary.comparisons if c.passed and is_compiled(c.record)]
        return slow([(where(c.record, summary.labels), c.estimate) for c in own], gate)
    limits = Limits.of(*(comparison.record.job.protocol for comparison in summary.comparisons))
    result = _compile if gate.kind == "compile" else _of_records
    return result(summary, gate, gate.share(limits.threshold))


def _of_records(summary: Summary, gate: Gate, share: float) -> GateResult:
    labels = summary.labels
    passed = [(where(c.record, labels), c) for c in summary.comparisons if c.passed]
    if gate.kind == "memory":
        title = f"peaks of memory above eager's by more than {share_text(share)}"
        known = [(name, c.memory_ratio) for name, c in passed if c.memory_ratio]
        large = [(name, ratio) for name, ratio in known if ratio < 1 / (1 + share)]
        cases = [f"{name}: {1 / ratio:.2f}x of eager's memory" for name, ratio in large]
    else:
        metric, noun = COUNTS[gate.kind]
        title = f"results with {noun}"
        known = [(name, count) for name, c in passed if (count := c.number(metric)) is not None]
        cases = [f"{name}: {count:.0f} {noun}" for name, count in known if count]
    if any(is_compiled(c.record) for _, c in passed) and not known:
        raise UsageError(f"{FLAG} {gate.words}: no result that passed has the data for this gate")
    return GateResult(gate=gate, title=title, cases=tuple(cases))


def _compile(summary: Summary, gate: Gate, share: float) -> GateResult:
    """Cold starts of a compiler that take longer in an environment than in the reference environment."""
    labels = summary.labels
    pairs = [pair for pair in summary.of(COMPILATIONS) if _same_compiler(pair)]
    if not pairs:
        raise UsageError(
            f"{FLAG} {gate.words}: no compiler has two cold compilations in two environments; measure with a "
            "larger --compile-runs"
        )
    known = [
        (f"{where(p.other, labels)}: {estimate_text(p.estimate)} of the time", p.estimate, p.q_value)
        for p in pairs
        if p.other is not None and p.estimate is not None
    ]
    title = f"compilations that take longer by more than {share_text(share)}, of {len(pairs)}"
    alpha = min(pair.record.job.protocol.alpha for pair in pairs)
    return beyond(gate, title, known, math.log1p(share), 1, alpha)


def _same_compiler(pair: Ratio) -> bool:
    """Whether the pair is a compiler in the reference environment and in another one, from empty caches."""
    job = pair.record.job
    if pair.other in (None, pair.record) or pair.first.start != COLD or not job.environments:
        return False
    first, second = (split_candidate(job, side.candidate) for side in (pair.record, pair.other) if side)
    return first[0] == second[0] and first[1].name == job.environments[0].name
