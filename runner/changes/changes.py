"""From two runs to what changed between them: plain values for the outputs, derived, never stored."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from enum import Enum

from runner.changes.matching import Difference, Mismatch, machine_differences, match
from runner.changes.run import NO_RECORD, Result, Run
from runner.changes.statistics import (
    Drift,
    Estimate,
    ProcessNoise,
    Uncertain,
    difference,
    drift,
    estimate,
    less_drift,
    mean_change,
    process_noise,
    with_noise,
)
from runner.statistics import false_discovery, geometric_mean

ALPHA = 0.05
THRESHOLD = 0.02  # a smaller change is never called one
COMPILE_FACTOR = 1.25  # of a latency that was measured once: a smaller change is not named
MEMORY_FACTOR = 1.05


class Verdict(str, Enum):
    """What the two runs allow one to say of a speedup."""

    IMPROVED = "improved"
    REGRESSED = "regressed"
    SAME = "same"
    INCONCLUSIVE = "inconclusive"


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One model with one compiler, in both runs. All factors are B / A.

    ``speedup``: of the speedup over eager, above 1 is better. ``eager`` and ``compiled``: of
    the time of a step beyond the drift that all models share, above 1 is slower. ``q_value`` and
    ``compiled_q`` are Benjamini-Hochberg over all changes. None is what cannot be told.
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
    memory_factor: float | None = None  # of the memory ratio: above 1, B needs less beside its eager


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
class Changes:
    """Everything that the outputs show. ``incomparable``: why no time is compared for so many pairs."""

    first: Run
    second: Run
    changes: tuple[Change, ...]
    groups: tuple[GroupChange, ...]
    drift: Drift | None
    noise: ProcessNoise | None
    controls: tuple[Change, ...]
    mismatches: tuple[Mismatch, ...]
    incomparable: tuple[tuple[Difference, int], ...]
    only_first: tuple[Result, ...]
    only_second: tuple[Result, ...]

    @property
    def new_failures(self) -> tuple[Change, ...]:
        return self._ended(lambda a, b: a.passed and not b.passed and not b.skipped)

    @property
    def fixed(self) -> tuple[Change, ...]:
        return self._ended(lambda a, b: not a.passed and not a.skipped and b.passed)

    @property
    def other_endings(self) -> tuple[Change, ...]:
        """Another status, neither lost nor fixed: fails in another way, or is now skipped or run."""
        named = {id(change) for change in (*self.new_failures, *self.fixed)}
        return tuple(
            change
            for change in self._ended(lambda a, b: None not in (a.status, b.status) and a.status != b.status)
            if id(change) not in named
        )

    @property
    def breaks(self) -> tuple[Change, ...]:
        """Other graph breaks than before."""
        return self._ended(
            lambda a, b: None not in (a.graph_breaks, b.graph_breaks) and a.graph_breaks != b.graph_breaks
        )

    @property
    def timed(self) -> tuple[Change, ...]:
        return tuple(change for change in self.changes if change.speedup is not None)

    def with_verdict(self, verdict: Verdict) -> tuple[Change, ...]:
        return tuple(change for change in self.changes if change.verdict is verdict)

    def _ended(self, differs: Callable[[Result, Result], bool]) -> tuple[Change, ...]:
        """The control, too, can fail."""
        both = (*self.changes, *self.controls)
        return tuple(change for change in both if differs(change.first, change.second))


def changes_between(first: Run, second: Run) -> Changes:
    """``UsageError`` where the runs have nothing in common."""
    # what A planned and never measured says nothing; in B it is lost
    first = replace(first, results=tuple(r for r in first.results if r.status != NO_RECORD))
    matching = match(first, second)
    apart: dict[Difference, int] = {}
    alike = []
    for pair in matching.pairs:
        found = machine_differences(*pair)
        for one in found:
            apart[one] = apart.get(one, 0) + 1
        alike.append(not found)
    comparable = [pair for pair, like in zip(matching.pairs, alike, strict=True) if like]
    moved = _drift(comparable)
    noise = _noise(comparable)
    found_changes = [
        _change(pair, like=like, noise=noise, moved=moved)
        for pair, like in zip(matching.pairs, alike, strict=True)
    ]
    judged = _judged([change for change in found_changes if not change.first.is_control])
    return Changes(
        first=first,
        second=second,
        changes=judged,
        groups=_groups(judged),
        drift=moved,
        noise=noise,
        controls=tuple(change for change in found_changes if change.first.is_control),
        mismatches=matching.mismatches,
        incomparable=tuple(apart.items()),
        only_first=matching.only_first,
        only_second=matching.only_second,
    )


Pairs = Sequence[tuple[Result, Result]]


def _drift(pairs: Pairs) -> Drift | None:
    """Each model once: the candidates of one worker share their eager times."""
    found: dict[tuple[str, ...], list[float]] = {}
    for one, other in pairs:
        if one.eager_s and other.eager_s:
            known = (f"{name}={value}" for name, value in one.conditions.items() if name != "compiler")
            found.setdefault((one.name, *known), []).append(math.log(other.eager_s / one.eager_s))
    return drift([sum(logs) / len(logs) for logs in found.values()])


def _within(one: Result, other: Result) -> Uncertain | None:
    """The change of ln(speedup) with its error within the runs."""
    if one.speedup is None or other.speedup is None or not (one.passed and other.passed):
        return None
    return difference(one.speedup, other.speedup)


def _noise(pairs: Pairs) -> ProcessNoise | None:
    """None where nothing is timed."""
    controls = [
        result.speedup
        for pair in pairs
        for result in pair
        if result.is_control and result.speedup is not None and result.processes == 1
    ]
    found = [_within(*pair) for pair in pairs if not pair[0].is_control]
    changed = [change for change in found if change is not None]
    return process_noise(controls, changed) if changed or controls else None


def _change(
    pair: tuple[Result, Result], *, like: bool, noise: ProcessNoise | None, moved: Drift | None
) -> Change:
    one, other = pair
    if not like:
        return Change(first=one, second=other)
    change = _within(one, other)
    # several processes are in the run's own interval already
    single = sum(result.processes < 2 for result in pair)
    both = one.passed and other.passed
    return Change(
        first=one,
        second=other,
        speedup=estimate(with_noise(change, noise, single)) if change and noise else None,
        eager=_time((one.eager_s, one.eager_se), (other.eager_s, other.eager_se), moved),
        compiled=_time((one.compiled_s, one.compiled_se), (other.compiled_s, other.compiled_se), moved)
        if both
        else None,
        compile_factor=_factor(one.compile_s, other.compile_s) if both and alike_caches(pair) else None,
        memory_factor=_factor(one.memory_ratio, other.memory_ratio) if both else None,
    )


def alike_caches(pair: tuple[Result, Result]) -> bool:
    """Whether compilation began from as much; a file does not say."""
    return "" in (pair[0].caches, pair[1].caches) or pair[0].caches == pair[1].caches


def _time(
    one: tuple[float | None, float | None], other: tuple[float | None, float | None], moved: Drift | None
) -> Estimate | None:
    """The change of a time beyond the drift. An error that is not known is in the models' spread."""
    if not one[0] or not other[0] or moved is None:
        return None
    se = math.hypot(one[1] or 0.0, other[1] or 0.0)
    found = less_drift(math.log(other[0] / one[0]), se, moved)
    return estimate(found) if found is not None else None


def _factor(one: float | None, other: float | None) -> float | None:
    return other / one if one and other else None


def _judged(changes: Sequence[Change]) -> tuple[Change, ...]:
    q_values = false_discovery([c.speedup.p_value if c.speedup else None for c in changes])
    time_q = false_discovery([c.compiled.p_value if c.compiled else None for c in changes])
    return tuple(
        replace(change, q_value=q, compiled_q=of_time, verdict=_verdict(change.speedup, q))
        for change, q, of_time in zip(changes, q_values, time_q, strict=True)
    )


def _verdict(found: Estimate | None, q_value: float | None) -> Verdict | None:
    if found is None or q_value is None:
        return None
    high, low = 1 + THRESHOLD, 1 / (1 + THRESHOLD)
    if q_value < ALPHA and found.factor > high:
        return Verdict.IMPROVED
    if q_value < ALPHA and found.factor < low:
        return Verdict.REGRESSED
    return Verdict.SAME if low <= found.low and found.high <= high else Verdict.INCONCLUSIVE


def _groups(changes: Iterable[Change]) -> tuple[GroupChange, ...]:
    members: dict[tuple[str, str], list[Change]] = {}
    for change in changes:
        if NO_RECORD not in (change.first.status, change.second.status):
            known = {**change.second.conditions, **change.first.conditions}
            where = ", ".join(
                known[name] for name in ("suite", "mode", "precision", "device") if name in known
            )
            members.setdefault((change.first.compiler, where), []).append(change)
    return tuple(_group(compiler, where, group) for (compiler, where), group in members.items())


def _group(compiler: str, where: str, members: Sequence[Change]) -> GroupChange:
    timed = [(c.first.speedup, c.second.speedup) for c in members if c.speedup is not None]
    before = [math.exp(one.value) for one, _ in timed if one is not None]
    after = [math.exp(other.value) for _, other in timed if other is not None]
    return GroupChange(
        compiler=compiler,
        where=where,
        shared=len(members),
        passed_first=sum(change.first.passed for change in members),
        passed_second=sum(change.second.passed for change in members),
        timed=len(timed),
        geomean_first=geometric_mean(before)[0] if before else None,
        geomean_second=geometric_mean(after)[0] if after else None,
        speedup=mean_change([math.log(y / x) for x, y in zip(before, after, strict=True)]),
        compile=mean_change([math.log(c.compile_factor) for c in members if c.compile_factor]),
        memory=mean_change([math.log(c.memory_factor) for c in members if c.memory_factor]),
    )
