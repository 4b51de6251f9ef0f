"""Computes the changes between two runs. The values are for the outputs and are never stored.

Two runs: times are paired within a run and not between runs.

    change = ln(speedup in B) - ln(speedup in A)
    its variance = within A + within B + between processes

The rounds of each run give the first two parts. The third comes from a new process (memory layout, code
alignment, clocks). The interval of a run with several processes contains it. A run with one process has the
standard deviation that its own report assumes (``runner.analysis.verdicts.between``). Times of two runs have
no change with an interval: the machine may have slowed one model.

Two environments of a run: a round has four times, eager and compiled of A and of B. Each change is estimated
from its ratio in each round. A round that is slow on both sides cancels, and no drift is between the sides.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum

import numpy as np

from harness.schema import AS_FOUND, COLD, WARM
from runner.analysis.estimate import Estimate, Limits, PairedEstimate, Reason, Verdict
from runner.analysis.findings import Known
from runner.analysis.statistics import Floats, false_discovery, geomean, mean_of_logs, paired_speedup
from runner.analysis.verdicts.between import ASSUMED_ACROSS
from runner.analysis.verdicts.decision import Between, difference, judged_or_none, verdict
from runner.analysis.verdicts.family import assumed_of
from runner.analysis.verdicts.pairs import FEWEST, Round, keys_of, timed_in_both
from runner.analysis.verdicts.reasons import why_open
from runner.runs.compare.run import NO_RECORD, Difference, Mismatch, Result, Run, differences, match

COMPILE_FACTOR = 1.25  # smaller changes of a latency, which is measured only once, are ignored
MEMORY_FACTOR = 1.05


class Ending(Enum):
    """How the second run ended, compared with the first. Other: another failure, or newly skipped or run."""

    NEW_FAILURE = "new failure"
    FIXED = "fixed"
    OTHER = "other"
    SAME = "same"


@dataclass(frozen=True, slots=True, kw_only=True)
class Factors:
    """Factors B / A: of the speedup and, of shared rounds, of the times of a step. None: unknown."""

    speedup: Estimate | None = None
    eager: Estimate | None = None
    compiled: Estimate | None = None
    rounds: int = 0  # those that timed both sides; 0: two runs


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One model with one compiler, in both runs. All factors are B / A. None: unknown.

    ``factors``: of the speedup over eager, above 1 is better, and of the times of a step, above 1 is slower.
    ``q_value``: p of the speedup after Benjamini and Hochberg's correction over all changes.
    """

    first: Result
    second: Result
    factors: Factors = field(default_factory=Factors)
    q_value: float | None = None
    verdict: Verdict | None = None
    open_because: Reason | None = None
    compile_factor: float | None = None
    memory_factor: float | None = None  # of the memory ratio: above 1, B needs less memory relative to eager

    @property
    def speedup(self) -> Estimate | None:
        return self.factors.speedup

    @property
    def ending(self) -> Ending:
        first, second = self.first, self.second
        if first.passed and not second.passed and not second.skipped:
            return Ending.NEW_FAILURE
        if second.passed and not first.passed and not first.skipped:
            return Ending.FIXED
        return Ending.SAME if first.status == second.status else Ending.OTHER


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupChange:
    """All shared results of one compiler in one (suite, mode, precision, device), without points of a sweep.

    The geometric means are of the ``timed`` models, which passed with a time in both runs.
    """

    compiler: str
    where: str
    shared: int
    passed_first: int
    passed_second: int
    timed: int
    geomean_first: float | None
    geomean_second: float | None
    speedup: Estimate | None  # its interval is over models
    compile: Estimate | None
    memory: Estimate | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunChanges:
    """Everything that the outputs show. ``incomparable``: why no time is compared for so many pairs."""

    first: Run
    second: Run
    changes: tuple[Change, ...]
    limits: Limits
    groups: tuple[GroupChange, ...]
    drift: PairedEstimate | None  # eager's times in B over those in A: the pseudo-median over models
    controls: tuple[Change, ...]
    mismatches: tuple[Mismatch, ...]
    incomparable: tuple[tuple[Difference, int], ...]
    only_first: tuple[Result, ...]
    only_second: tuple[Result, ...]

    def ended(self, how: Ending) -> tuple[Change, ...]:
        """The changes that ended so, of the controls too, because a control can fail."""
        return tuple(change for change in (*self.changes, *self.controls) if change.ending is how)

    def counts(self, metric: str) -> list[tuple[Change, int, int]]:
        """The changes that have this metric in both runs, with its values."""
        values = [(c, c.first.count(metric), c.second.count(metric)) for c in (*self.changes, *self.controls)]
        return [(c, first, second) for c, first, second in values if first is not None and second is not None]

    @property
    def paired(self) -> bool:
        """Whether the sides are environments of one run, timed in the same rounds."""
        return bool(self.timed) and all(change.factors.rounds for change in self.timed)

    @property
    def timed(self) -> tuple[Change, ...]:
        return tuple(change for change in self.changes if change.speedup is not None)

    @property
    def crowded(self) -> tuple[int, int]:
        """In each run, the number of timed results during which other work used the CPUs."""
        pairs = [[Known(side.comparison).crowded() for side in (c.first, c.second)] for c in self.timed]
        return sum(first for first, _ in pairs), sum(second for _, second in pairs)


def changes_between(first: Run, second: Run) -> RunChanges:
    """Raises ``UsageError`` if the runs have no common result."""
    # a result that A never measured is ignored; a result that B never measured is a loss
    first = replace(first, results=tuple(r for r in first.results if not r.missing))
    pairs, mismatches, only_first, only_second = match(first, second)
    differing = [differences(before.machine, after.machine) for before, after in pairs]
    moved = _drift([pair for pair, facts in zip(pairs, differing, strict=True) if not facts])
    changes = [
        Change(first=pair[0], second=pair[1]) if facts else _change(pair)
        for pair, facts in zip(pairs, differing, strict=True)
    ]
    limits = Limits.of(*(result.record.job.protocol for result in (*first.results, *second.results)))
    judged = tuple(_judged([change for change in changes if not change.first.is_control], limits))
    return RunChanges(
        first=first,
        second=second,
        changes=judged,
        limits=limits,
        groups=_groups(judged),
        drift=moved,
        controls=tuple(change for change in changes if change.first.is_control),
        mismatches=tuple(mismatches),
        incomparable=tuple(Counter(itertools.chain(*differing)).items()),
        only_first=tuple(only_first),
        only_second=tuple(result for result in only_second if not result.missing),
    )


def _drift(pairs: Sequence[tuple[Result, Result]]) -> PairedEstimate | None:
    """Each model once: its candidates share their eager times, and its points are not several models."""
    logs_of: dict[tuple[object, ...], list[float]] = {}
    for first, second in pairs:
        before, after = first.comparison.baseline_ms, second.comparison.baseline_ms
        if before and after:
            swept = ("batch size", "changes") if first.record.job.case.point else ()
            kept = {n: v for n, v in first.conditions.items() if n not in ("compiler", *swept)}
            model = (first.name, *kept.items())
            logs_of.setdefault(model, []).append(math.log(after / before))
    ratios = [math.exp(sum(logs) / len(logs)) for logs in logs_of.values()]
    return paired_speedup(ratios, [1.0] * len(ratios)) if ratios else None


def _change(pair: tuple[Result, Result]) -> Change:
    first, second = pair
    shared = shared_rounds(first, second)
    changed = shared or Factors(speedup=difference(first.speedup, second.speedup))
    change = Change(first=first, second=second, factors=changed)
    if not (first.passed and second.passed):
        return change
    before, after = first.comparison, second.comparison
    compiled = _ratio(before.compile_s, after.compile_s) if alike_caches(pair) else None
    memory = _ratio(before.memory_ratio, after.memory_ratio)
    return replace(change, compile_factor=compiled, memory_factor=memory)


def shared_rounds(first: Result, second: Result) -> Factors | None:
    """From the rounds that timed both sides; None for two runs, and below ``FEWEST`` rounds: no interval."""
    if first.shares is None or first.shares != second.shares or not (first.passed and second.passed):
        return None
    before, after = _by_round(first), _by_round(second)
    rounds, by_process = timed_in_both(before, after)
    if len(rounds) < FEWEST:
        return None

    def factor(newer: Floats, older: Floats, tau: float) -> Estimate | None:
        return judged_or_none(newer, older, by_process, Between(assumed_sd=tau))

    (eager_a, compiled_a), (eager_b, compiled_b) = (
        np.array([side[key] for key in rounds]).T for side in (before, after)
    )
    tau = math.hypot(assumed_of(first.record), assumed_of(second.record))
    return Factors(
        speedup=factor(eager_b / compiled_b, eager_a / compiled_a, tau),
        eager=factor(eager_b, eager_a, ASSUMED_ACROSS),
        compiled=factor(compiled_b, compiled_a, ASSUMED_ACROSS),
        rounds=len(rounds),
    )


def _by_round(result: Result) -> Mapping[Round, tuple[float, float]]:
    """The seconds of eager and compiled; empty if the rounds have no number."""
    samples = result.record.samples
    if samples is None or len(samples.round_index) != len(samples):
        return {}
    times = zip(samples.baseline_s, samples.candidate_s, strict=True)
    return dict(zip(keys_of(samples, apart=True), times, strict=True))


def _ratio(before: float | None, after: float | None) -> float | None:
    return after / before if before and after else None


def alike_caches(pair: tuple[Result, Result]) -> bool:
    """Whether compile caches were in the same state, as far as is known."""
    states = {result.caches for result in pair}
    return len(states) == 1 or (AS_FOUND in states and states <= {AS_FOUND, WARM, COLD})


def _judged(changes: Sequence[Change], limits: Limits) -> Iterator[Change]:
    q_values = false_discovery([c.speedup.p_value if c.speedup else None for c in changes])
    for change, q in zip(changes, q_values, strict=True):
        word = verdict(change.speedup, q, limits)
        because = why_open(change.speedup, (change.first.speedup, change.second.speedup), word, limits)
        yield replace(change, q_value=q, verdict=word, open_because=because)


def _groups(changes: Iterable[Change]) -> tuple[GroupChange, ...]:
    members: dict[tuple[str, str], list[Change]] = {}
    for change in changes:
        if change.second.status != NO_RECORD and not change.first.record.job.case.point:
            known = change.first.conditions
            where = ", ".join(known[name] for name in ("suite", "mode", "precision", "device"))
            members.setdefault((change.first.compiler, where), []).append(change)
    return tuple(_group(compiler, where, group) for (compiler, where), group in members.items())


def _group(compiler: str, where: str, members: Sequence[Change]) -> GroupChange:
    timed = [change for change in members if change.speedup is not None]
    before = [change.first.speedup for change in timed if change.first.speedup is not None]
    after = [change.second.speedup for change in timed if change.second.speedup is not None]
    return GroupChange(
        compiler=compiler,
        where=where,
        shared=len(members),
        passed_first=sum(change.first.passed for change in members),
        passed_second=sum(change.second.passed for change in members),
        timed=len(timed),
        geomean_first=geomean(before).value,
        geomean_second=geomean(after).value,
        speedup=mean_of_logs([math.log(y.factor / x.factor) for x, y in zip(before, after, strict=True)]),
        compile=mean_of_logs([math.log(c.compile_factor) for c in members if c.compile_factor]),
        memory=mean_of_logs([math.log(c.memory_factor) for c in members if c.memory_factor]),
    )
