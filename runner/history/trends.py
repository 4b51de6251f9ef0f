"""What became of a section's numbers over the runs: points, and which changes are beyond noise."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from runner.changes.changes import THRESHOLD, Changes, GroupChange, changes_between
from runner.changes.run import Result, Run
from runner.changes.statistics import Estimate
from runner.errors import UsageError
from runner.history.index import Entry
from runner.labels import plain
from runner.statistics import geometric_mean

BEYOND = 0.01  # p of a marked change: many points are looked at
CONDITIONS = ("suite", "mode", "precision", "device")


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One compiler in one run. What does not exist is None.

    ``marks``: of the panels whose number changed beyond noise since the run before, what changed.
    """

    run: str
    when: datetime
    passed: int
    total: int
    geomean: float | None = None
    compile_s: float | None = None  # geometric mean over models
    memory: float | None = None
    marks: Mapping[str, str] | None = None

    @property
    def pass_share(self) -> float:
        return self.passed / self.total


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
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


def sections(entries: Sequence[Entry]) -> tuple[Section, ...]:
    """Everything that more than one run measured on the same machine; what was measured last comes first.

    A run that was joined from others stands for them.
    """
    joined = {name for entry in entries for name in entry.merged_from}
    found: dict[Key, list[tuple[Entry, tuple[Result, ...]]]] = {}
    for entry in entries:
        if entry.name not in joined:
            for key, results in _parts(entry).items():
                found.setdefault(key, []).append((entry, results))
    every = [_section(key, runs) for key, runs in found.items() if len(runs) > 1]
    made = [section for section in every if any(len(points) > 1 for points in section.lines.values())]
    return tuple(sorted(made, key=lambda section: section.latest, reverse=True))


def _parts(entry: Entry) -> dict[Key, tuple[Result, ...]]:
    parts: dict[Key, list[Result]] = {}
    for result in entry.results:
        key = (*(result.conditions.get(name, "") for name in CONDITIONS), entry.machine)
        parts.setdefault(key, []).append(result)
    return {key: tuple(results) for key, results in parts.items()}


def _section(key: Key, runs: Sequence[tuple[Entry, tuple[Result, ...]]]) -> Section:
    *conditions, machine = key
    lines: dict[str, list[Point]] = {}
    before: Run | None = None
    for entry, results in runs:
        run = Run(path=Path(entry.name), results=results)
        changes = _changes(before, run)
        for compiler in dict.fromkeys(result.compiler for result in results):
            mine = [r for r in results if r.compiler == compiler and not r.skipped]
            if mine and not mine[0].is_control:
                marks = dict(_marks(changes, compiler)) if changes is not None else {}
                lines.setdefault(compiler, []).append(_point(entry, mine, marks))
        before = run
    where = f" on {machine}" if machine else ""
    return Section(
        title=plain(", ".join(filter(None, conditions)) + where),
        lines={compiler: tuple(points) for compiler, points in lines.items()},
    )


def _changes(before: Run | None, after: Run) -> Changes | None:
    """None where the two have nothing in common."""
    if before is None:
        return None
    try:
        return changes_between(before, after)
    except UsageError:
        return None


def _point(entry: Entry, results: Sequence[Result], marks: Mapping[str, str]) -> Point:
    passed = [result for result in results if result.passed]
    return Point(
        run=entry.name,
        when=entry.created,
        passed=len(passed),
        total=len(results),
        geomean=_mean(math.exp(r.speedup.value) for r in passed if r.speedup is not None),
        compile_s=_mean(r.compile_s for r in passed),
        memory=_mean(r.memory_ratio for r in passed),
        marks=marks,
    )


def _mean(values: Iterable[float | None]) -> float | None:
    """The geometric mean of those that are numbers."""
    numbers = [value for value in values if value]
    return geometric_mean(numbers)[0] if numbers else None


def _marks(changes: Changes, compiler: str) -> Iterator[tuple[str, str]]:
    """Only results that both runs have, measured in the same way, can change."""
    lost = sum(change.first.compiler == compiler for change in changes.new_failures)
    fixed = sum(change.first.compiler == compiler for change in changes.fixed)
    if lost or fixed:
        yield "pass rate", ", ".join([f"{lost} lost"] * bool(lost) + [f"{fixed} fixed"] * bool(fixed))
    for group in changes.groups:
        if group.compiler == compiler:
            for panel, found in _estimates(changes, group):
                if found and found.p_value < BEYOND and abs(math.log(found.factor)) > math.log(1 + THRESHOLD):
                    yield panel, f"{found.factor:.2f}x"


def _estimates(changes: Changes, group: GroupChange) -> Iterator[tuple[str, Estimate | None]]:
    alone = [c.speedup for c in changes.timed if c.first.compiler == group.compiler]
    # a single model has the interval of its own change
    yield "speedup", group.speedup or (alone[0] if len(alone) == 1 else None)
    yield "compile time", group.compile
    yield "memory", group.memory


def latest_changes(found: Sequence[Section]) -> Iterator[str]:
    """What the newest run of each section changed, as sentences."""
    for section in found:
        for compiler, points in section.lines.items():
            last = points[-1]
            if last.marks and last.when == section.latest:
                words = ", ".join(f"{panel} {what}" for panel, what in last.marks.items())
                yield plain(f"{section.title}, {compiler}: {words} (in {last.run})")
