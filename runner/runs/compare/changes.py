"""Computes the changes between two runs. The values are for the outputs and are never stored."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from statistics import median

from harness.schema import Samples
from runner.analysis.estimate import Estimate, Limits, PairedEstimate, Verdict
from runner.analysis.statistics import false_discovery, geometric_mean, mean_of_logs
from runner.analysis.verdicts.decision import verdict
from runner.runs.compare.matching import Difference, Mismatch, machine_differences, match
from runner.runs.compare.paired import shared_rounds
from runner.runs.compare.run import AS_FOUND, COLD, NO_RECORD, WARM, Result, Run
from runner.runs.compare.statistics import (
    Drift,
    ProcessNoise,
    between,
    difference,
    drift,
    less_drift,
    process_noise,
)

COMPILE_FACTOR = 1.25  # smaller changes of a latency, which is measured only once, are ignored
MEMORY_FACTOR = 1.05


class Ending(Enum):
    """How the second run ended, compared with the first. Other: another failure, or newly skipped or run."""

    NEW_FAILURE = "new failure"
    FIXED = "fixed"
    OTHER = "other"
    SAME = "same"


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One model with one compiler, in both runs. All factors are B / A. None: unknown.

    ``speedup``: the factor of the speedup over eager, above 1 is better. ``eager`` and ``compiled``: the
    factor of the time of a step, above 1 is slower: beyond the drift that all models share, or, for two
    environments of a run, from the ``shared_rounds`` that timed both sides. ``q_value`` and ``compiled_q``: p
    after Benjamini and Hochberg's correction over all changes.
    """

    first: Result
    second: Result
    speedup: Estimate | None = None
    q_value: float | None = None
    verdict: Verdict | None = None
    eager: Estimate | None = None
    compiled: Estimate | None = None
    compiled_q: float | None = None
    compile_factor: float | None = None
    memory_factor: float | None = None  # of the memory ratio: above 1, B needs less memory relative to eager
    shared_rounds: int = 0  # 0: two runs

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
    """All shared results of one compiler in one (suite, mode, precision, device).

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
    drift: Drift | None
    noise: ProcessNoise | None
    controls: tuple[Change, ...]
    mismatches: tuple[Mismatch, ...]
    incomparable: tuple[tuple[Difference, int], ...]
    only_first: tuple[Result, ...]
    only_second: tuple[Result, ...]

    def ended(self, how: Ending) -> tuple[Change, ...]:
        """The changes that ended so, of the controls too, because a control can fail."""
        return tuple(change for change in (*self.changes, *self.controls) if change.ending is how)

    @property
    def breaks(self) -> tuple[Change, ...]:
        """Results whose number of graph breaks changed."""
        counts = [(c, c.first.graph_breaks, c.second.graph_breaks) for c in (*self.changes, *self.controls)]
        return tuple(c for c, first, second in counts if None not in (first, second) and first != second)

    @property
    def paired(self) -> bool:
        """Whether the sides are environments of one run, timed in the same rounds."""
        return bool(self.timed) and all(change.shared_rounds for change in self.timed)

    @property
    def timed(self) -> tuple[Change, ...]:
        return tuple(change for change in self.changes if change.speedup is not None)

    @property
    def crowded(self) -> tuple[int, int]:
        """In each run, the number of timed results during which other work used the CPUs."""
        return sum(c.first.crowded for c in self.timed), sum(c.second.crowded for c in self.timed)

    def with_verdict(self, wanted: Verdict) -> tuple[Change, ...]:
        return tuple(change for change in self.changes if change.verdict is wanted)


def changes_between(first: Run, second: Run) -> RunChanges:
    """Raises ``UsageError`` if the runs have no common result."""
    # a result that A never measured is ignored; a result that B never measured is a loss
    first = replace(first, results=tuple(r for r in first.results if r.status != NO_RECORD))
    matching = match(first, second)
    differing = [machine_differences(*pair) for pair in matching.pairs]
    comparable = [pair for pair, facts in zip(matching.pairs, differing, strict=True) if not facts]
    moved = _drift(comparable)
    controls = (*first.controls, *(control for control in second.controls if control not in first.controls))
    noise = _noise(comparable, controls)
    groups = _noise_by_group(comparable)
    all_changes = [
        Change(first=pair[0], second=pair[1])
        if facts
        else _change(pair, groups.get(_noise_group(pair)) or noise, moved)
        for pair, facts in zip(matching.pairs, differing, strict=True)
    ]
    limits = _limits((*first.results, *second.results))
    judged = _judged([change for change in all_changes if not change.first.is_control], limits)
    return RunChanges(
        first=first,
        second=second,
        changes=judged,
        limits=limits,
        groups=_groups(judged),
        drift=moved,
        noise=noise,
        controls=tuple(change for change in all_changes if change.first.is_control),
        mismatches=matching.mismatches,
        incomparable=tuple(Counter(itertools.chain(*differing)).items()),
        only_first=matching.only_first,
        only_second=tuple(r for r in matching.only_second if r.status != NO_RECORD),
    )


Pairs = Sequence[tuple[Result, Result]]


def _drift(pairs: Pairs) -> Drift | None:
    """Each model once: the candidates of one worker share their eager times."""
    logs_of: dict[tuple[str, ...], list[float]] = {}
    for first, second in pairs:
        if first.eager_s and second.eager_s:
            conditions = (f"{name}={value}" for name, value in first.conditions.items() if name != "compiler")
            logs_of.setdefault((first.name, *conditions), []).append(math.log(second.eager_s / first.eager_s))
    return drift([sum(logs) / len(logs) for logs in logs_of.values()])


def _within(first: Result, second: Result) -> Estimate | None:
    """The change of ln(speedup), with the error within the runs, or of the rounds that both sides share."""
    if first.speedup is None or second.speedup is None:
        return None
    shared = shared_rounds(first, second)
    return shared.change() if shared is not None else difference(first.speedup, second.speedup)


def _noise(pairs: Pairs, elsewhere: Sequence[Result] = ()) -> ProcessNoise | None:
    """None if there are too few values. ``elsewhere``: controls that are in no pair."""
    results = (*itertools.chain(*pairs), *elsewhere)
    controls = [r.speedup for r in results if r.is_control and r.speedup and r.speedup.processes == 1]
    changes = [_within(*pair) for pair in pairs if not pair[0].is_control]
    return process_noise(controls, [change for change in changes if change is not None])


def _noise_by_group(pairs: Pairs) -> dict[tuple[str, ...], ProcessNoise | None]:
    """The noise of each device, precision and mode; None if it has too few values of its own."""
    members: dict[tuple[str, ...], list[tuple[Result, Result]]] = {}
    for pair in pairs:
        members.setdefault(_noise_group(pair), []).append(pair)
    return {group: _noise(alike) for group, alike in members.items()}


def _noise_group(pair: tuple[Result, Result]) -> tuple[str, ...]:
    return tuple(pair[0].conditions[name] for name in ("device", "precision", "mode"))


def _change(pair: tuple[Result, Result], noise: ProcessNoise | None, moved: Drift | None) -> Change:
    first, second = pair
    shared = shared_rounds(first, second)
    both = first.passed and second.passed
    if shared:
        eager, compiled = shared.eager(), shared.compiled()
    else:
        eager = _time(first, second, moved, lambda samples: samples.baseline_s)
        compiled = _time(first, second, moved, lambda samples: samples.candidate_s)
    return Change(
        first=first,
        second=second,
        speedup=shared.change(noise) if shared else _speedup(first.speedup, second.speedup, noise),
        eager=eager,
        compiled=compiled if both else None,
        compile_factor=_compile_factor(pair, None if shared else moved) if both else None,
        memory_factor=_factor(first.memory_ratio, second.memory_ratio) if both else None,
        shared_rounds=len(shared) if shared else 0,
    )


def _speedup(
    first: PairedEstimate | None, second: PairedEstimate | None, noise: ProcessNoise | None
) -> Estimate | None:
    if first is None or second is None:
        return None
    alone = [estimate.assumed_sd or 0.0 for estimate in (first, second) if estimate.processes == 1]
    return difference(first, second, between(alone, noise))


def _time(
    first: Result, second: Result, moved: Drift | None, times: Callable[[Samples], Sequence[float]]
) -> Estimate | None:
    """The change of a time beyond the drift."""
    samples = first.record.samples, second.record.samples
    if None in (*samples, first.estimate, second.estimate) or moved is None:
        return None
    before, after = (times(side) for side in samples if side)
    return less_drift(math.log(median(after) / median(before)), before, after, moved)


def alike_caches(pair: tuple[Result, Result]) -> bool:
    """Whether compile caches were in the same state, as far as is known."""
    states = {result.caches for result in pair}
    return len(states) == 1 or (AS_FOUND in states and states <= {AS_FOUND, WARM, COLD})


def _compile_factor(pair: tuple[Result, Result], moved: Drift | None) -> float | None:
    """The change of compile time. On a CPU, where eager shows the machine's speed, beyond its drift."""
    before, after = pair
    factor = _factor(before.compile_s, after.compile_s) if alike_caches(pair) else None
    if factor is None or moved is None or before.conditions["device"] != "cpu":
        return factor
    return factor / moved.factor


def _factor(before: float | None, after: float | None) -> float | None:
    return after / before if before and after else None


def _judged(changes: Sequence[Change], limits: Limits) -> tuple[Change, ...]:
    q_values = false_discovery([c.speedup.p_value if c.speedup else None for c in changes])
    time_q = false_discovery([c.compiled.p_value if c.compiled else None for c in changes])
    return tuple(
        replace(change, q_value=q, compiled_q=of_time, verdict=verdict(change.speedup, q, limits))
        for change, q, of_time in zip(changes, q_values, time_q, strict=True)
    )


def _limits(results: Sequence[Result]) -> Limits:
    """The limits of both runs' verdicts; of different ones, the stricter."""
    limits = [Limits.of(result.record.job.protocol) for result in results]
    return Limits(threshold=max(run.threshold for run in limits), alpha=min(run.alpha for run in limits))


def _groups(changes: Iterable[Change]) -> tuple[GroupChange, ...]:
    members: dict[tuple[str, str], list[Change]] = {}
    for change in changes:
        if NO_RECORD not in (change.first.status, change.second.status):
            known = change.first.conditions
            where = ", ".join(known[name] for name in ("suite", "mode", "precision", "device"))
            members.setdefault((change.first.compiler, where), []).append(change)
    return tuple(_group(compiler, where, group) for (compiler, where), group in members.items())


def _group(compiler: str, where: str, members: Sequence[Change]) -> GroupChange:
    timed = [(c.first.speedup, c.second.speedup) for c in members if c.speedup is not None]
    before = [first.factor for first, _ in timed if first is not None]
    after = [second.factor for _, second in timed if second is not None]
    return GroupChange(
        compiler=compiler,
        where=where,
        shared=len(members),
        passed_first=sum(change.first.passed for change in members),
        passed_second=sum(change.second.passed for change in members),
        timed=len(timed),
        geomean_first=geometric_mean(before)[0] if before else None,
        geomean_second=geometric_mean(after)[0] if after else None,
        speedup=mean_of_logs([math.log(y / x) for x, y in zip(before, after, strict=True)]),
        compile=mean_of_logs([math.log(c.compile_factor) for c in members if c.compile_factor]),
        memory=mean_of_logs([math.log(c.memory_factor) for c in members if c.memory_factor]),
    )
