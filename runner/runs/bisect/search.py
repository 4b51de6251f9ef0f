"""Records of two environments -> how each result changed; and the search for the version that changed it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TypeVar

from harness.schema import Job, Record, of_environment
from runner.analysis.comparison import CandidatePair
from runner.analysis.derive import summarize
from runner.analysis.digits import speedup_text
from runner.analysis.estimate import Verdict
from runner.errors import UsageError
from runner.labels import plain

SAME, SLOWER, FASTER = (verdict.value for verdict in (Verdict.SAME, Verdict.SLOWER, Verdict.FASTER))
STATUS, OPEN = "another status", "not decided"
OF_NEWER = {Verdict.SAME: SAME, Verdict.FASTER: SLOWER, Verdict.SLOWER: FASTER}  # of the verdict on the older


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultChange:
    """``worse``: slower, or it passed before and does not now."""

    change: str
    text: str
    worse: bool = False


def name_of(job: Job, compiler: str) -> str:
    """``MLP_addition training float32 cpu, inductor``"""
    return plain(f"{job.case.name} {job.case.mode.value} {job.dtype} {job.device}, {compiler}")


def result_changes(records: Sequence[Record], older: str, newer: str) -> dict[str, ResultChange]:
    """The change of each result with a record in both environments, by ``name_of``."""
    sides: dict[str, dict[str, Record]] = {}
    for record in records:
        sides.setdefault(_name(record), {})[record.env] = record
    every = summarize(records).pairs  # the older environment is first, as in the job's candidates
    pairs = {_name(p.first.record): p for p in every if _name(p.first.record) == _name(p.second.record)}
    complete = {name: both for name, both in sides.items() if {older, newer} <= both.keys()}
    return {name: _change(b[older], b[newer], pairs.get(name)) for name, b in complete.items()}


def _name(record: Record) -> str:
    return name_of(record.job, record.candidate.removesuffix(of_environment("", record.env)))


def _change(older: Record, newer: Record, pair: CandidatePair | None) -> ResultChange:
    was, now = older.status, newer.status
    if was != now:
        why = f", {newer.failure.kind}: {newer.failure.message}"[:120] if newer.failure else ""
        text = plain(f"{was.value} -> {now.value}{why}")
        return ResultChange(change=STATUS, text=text, worse=was.passed and not now.passed)
    if not now.passed:
        return ResultChange(change=SAME, text=now.value)
    if pair is None or pair.speedup is None or pair.verdict is None:
        return ResultChange(change=OPEN, text=f"{now.value}, no speed")
    low, high = (end and 1 / end for end in (pair.ci_high, pair.ci_low))
    change = OF_NEWER.get(pair.verdict, OPEN)
    text = f"{now.value}, {speedup_text(1 / pair.speedup, low, high)} of its speed: {change}"
    return ResultChange(change=change, text=text, worse=change == SLOWER)


Build = TypeVar("Build")


def search(
    builds: Sequence[Build],
    names: Collection[str],
    measure: Callable[[Build, Collection[str]], Mapping[str, ResultChange]],
) -> dict[str, tuple[str, Sequence[Build]]]:
    """For each result the change, and the builds from the last without it to the first with it.

    Those between the two could not be decided. ``measure(build, names)``: these results, compared with the
    oldest build. Raises ``UsageError`` if the first or the last build cannot be used.
    """
    ends = measure(builds[-1], names)
    changes = {name: ends[name].change if name in ends else OPEN for name in names}
    changed = [name for name in names if changes[name] not in (SAME, OPEN)]

    @cache
    def at(place: int) -> Mapping[str, ResultChange]:
        try:
            return measure(builds[place], changed)
        except UsageError:
            return {}

    def narrowed(name: str, change: str) -> Sequence[Build]:
        low, high, left = 0, len(builds) - 1, [*range(1, len(builds) - 1)]
        while left:
            place = left.pop(len(left) // 2)
            result = at(place).get(name)
            if result is not None and result.change == change:
                high = place
            elif result is not None and result.change in (SAME, SLOWER, FASTER):
                low = place
            left = [other for other in left if low < other < high]
        return builds[low : high + 1]

    return {name: (c, narrowed(name, c) if name in changed else builds) for name, c in changes.items()}
