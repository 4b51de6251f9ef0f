"""The trends of a section over the runs: points, and the changes beyond noise."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from runner.analysis.estimate import Verdict
from runner.analysis.statistics import geometric_mean
from runner.analysis.verdicts.decision import relation
from runner.errors import UsageError
from runner.labels import plain
from runner.runs.compare.changes import THRESHOLD, GroupChange, RunChanges, changes_between
from runner.runs.compare.run import Result, Run
from runner.runs.compare.statistics import Estimate
from runner.runs.history.index import IndexedRun

SHOWN_CHANGES = 20
BEYOND = 0.01  # p of a marked change; small, because many points are tested
CONDITIONS = ("suite", "mode", "precision", "device")


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One compiler in one run. A missing number is None.

    ``marks``: of the panels whose number changed beyond noise since the run before, or since the last run
    that has a mark, what changed.
    """

    run: str
    when: datetime
    passed: int
    total: int
    geomean: float | None = None
    geomean_low: float | None = None  # 95 % interval over models
    geomean_high: float | None = None
    compile_s: float | None = None  # geometric mean over models
    memory: float | None = None
    marks: Mapping[str, str] | None = None

    @property
    def pass_share(self) -> float:
        return self.passed / self.total


@dataclass(frozen=True, slots=True, kw_only=True)
class Trend:
    """One suite in one mode, precision and device on one machine: points by compiler, oldest first."""

    title: str
    lines: Mapping[str, tuple[Point, ...]]

    @property
    def latest(self) -> datetime:
        return max(points[-1].when for points in self.lines.values())

    @property
    def runs(self) -> int:
        return len({point.run for points in self.lines.values() for point in points})


PANELS = ("pass rate", "speedup", "compile time", "memory")

Key = tuple[str, ...]


def trends(entries: Sequence[IndexedRun], *, controls: bool = False) -> tuple[Trend, ...]:
    """The trends of everything that several runs measured on one machine, the latest trend first.

    A merged run replaces its source runs.
    """
    joined = {name for entry in entries for name in entry.merged_from}
    found: dict[Key, list[tuple[IndexedRun, tuple[Result, ...]]]] = {}
    for entry in entries:
        if entry.name not in joined:
            for key, results in _parts(entry).items():
                found.setdefault(key, []).append((entry, results))
    every = [_trend(key, runs, controls=controls) for key, runs in found.items() if len(runs) > 1]
    made = [trend for trend in every if any(len(points) > 1 for points in trend.lines.values())]
    return tuple(sorted(made, key=lambda trend: trend.latest, reverse=True))


def _parts(entry: IndexedRun) -> dict[Key, tuple[Result, ...]]:
    parts: dict[Key, list[Result]] = {}
    for result in entry.results:
        key = (*(result.conditions.get(name, "") for name in CONDITIONS), entry.machine)
        parts.setdefault(key, []).append(result)
    return {key: tuple(results) for key, results in parts.items()}


def _trend(key: Key, runs: Sequence[tuple[IndexedRun, tuple[Result, ...]]], *, controls: bool) -> Trend:
    *conditions, machine = key
    lines: dict[str, list[Point]] = {}
    before: Run | None = None
    changed: dict[str, Run] = {}  # of each compiler, the last run with a mark, or its first run
    for entry, results in runs:
        run = Run(path=Path(entry.name), results=results)
        changes = _changes(before, run)
        for compiler in dict.fromkeys(result.compiler for result in results):
            mine = [r for r in results if r.compiler == compiler and not r.skipped]
            if mine and (controls or not mine[0].is_control):
                marks = dict(_marks(changes, compiler)) if changes is not None else {}
                since = changed.setdefault(compiler, run)
                if before not in (None, since) and since is not run:
                    marks = {**_marks_since(since, run, compiler), **marks}
                if marks:
                    changed[compiler] = run
                lines.setdefault(compiler, []).append(_point(entry, mine, marks))
        before = run
    where = f" on {machine}" if machine else ""
    return Trend(
        title=plain(", ".join(filter(None, conditions)) + where),
        lines={compiler: tuple(points) for compiler, points in lines.items()},
    )


def _marks_since(since: Run, run: Run, compiler: str) -> dict[str, str]:
    """Marks against the last changed run: a creep that no two neighbors show."""
    changes = _changes(since, run)
    if changes is None:
        return {}
    return {panel: f"{what} since {since.path.name}" for panel, what in _marks(changes, compiler)}


def _changes(before: Run | None, after: Run) -> RunChanges | None:
    """None if the two runs have no common result."""
    if before is None:
        return None
    try:
        return changes_between(before, after)
    except UsageError:
        return None


def _point(entry: IndexedRun, results: Sequence[Result], marks: Mapping[str, str]) -> Point:
    passed = [result for result in results if result.passed]
    speedups = speedups_of(passed)
    mean, low, high = geometric_mean(speedups) if speedups else (None, None, None)
    return Point(
        run=entry.name,
        when=entry.created,
        passed=len(passed),
        total=len(results),
        geomean=mean,
        geomean_low=low,
        geomean_high=high,
        compile_s=_mean(r.compile_s for r in passed),
        memory=_mean(r.memory_ratio for r in passed),
        marks=marks,
    )


def speedups_of(results: Iterable[Result]) -> list[float]:
    """The speedups of the results that passed."""
    return [math.exp(r.speedup.value) for r in results if r.passed and r.speedup is not None]


def conditions_of(result: Result) -> str:
    """``tiny_gpt, training, float32, cpu``"""
    return ", ".join(filter(None, (result.conditions.get(name, "") for name in CONDITIONS)))


def _mean(values: Iterable[float | None]) -> float | None:
    """The geometric mean of the values that are not None."""
    numbers = [value for value in values if value]
    return geometric_mean(numbers)[0] if numbers else None


def _marks(changes: RunChanges, compiler: str) -> Iterator[tuple[str, str]]:
    """The changes of results that both runs measured under the same conditions."""
    lost = sum(change.first.compiler == compiler for change in changes.new_failures)
    fixed = sum(change.first.compiler == compiler for change in changes.fixed)
    if lost or fixed:
        yield "pass rate", ", ".join([f"{lost} lost"] * bool(lost) + [f"{fixed} fixed"] * bool(fixed))
    for group in changes.groups:
        if group.compiler == compiler:
            for panel, found in _estimates(changes, group):
                if found and found.p_value < BEYOND and _beyond(found):
                    yield panel, f"{found.factor:.2f}x"


def _beyond(found: Estimate) -> bool:
    """Whether the whole interval lies beyond the threshold: the rule of every verdict."""
    place = relation((found.low, found.high), (found.low_90, found.high_90), THRESHOLD)
    return place in (Verdict.FASTER, Verdict.SLOWER)


def _estimates(changes: RunChanges, group: GroupChange) -> Iterator[tuple[str, Estimate | None]]:
    alone = [c.speedup for c in changes.timed if c.first.compiler == group.compiler]
    # for a single model, use the interval of its change
    yield "speedup", group.speedup or (alone[0] if len(alone) == 1 else None)
    yield "compile time", group.compile
    yield "memory", group.memory


def latest_changes(found: Sequence[Trend]) -> Iterator[str]:
    """One sentence for each change in the newest run of a trend."""
    for trend in found:
        for compiler, points in trend.lines.items():
            last = points[-1]
            if last.marks and last.when == trend.latest:
                words = ", ".join(f"{panel} {what}" for panel, what in last.marks.items())
                yield plain(f"{trend.title}, {compiler}: {words} (in {last.run})")
