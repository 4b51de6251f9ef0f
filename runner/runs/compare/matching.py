"""Matches the results of two runs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from runner.errors import UsageError
from runner.labels import plain
from runner.runs.compare.run import Result, Run

Difference = tuple[str, str, str]
"""(name of the condition, value in A, value in B)"""

SAME_SUBJECT = ("suite", "mode", "compiler")
"""Results that differ in one of these are different subjects, not one subject under two conditions."""

Identity = tuple[str | tuple[str, str], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Mismatch:
    """A model that both runs measured with one compiler, but under different conditions."""

    first: Result
    second: Result
    differences: tuple[Difference, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Matching:
    """Each result of both runs appears once."""

    pairs: tuple[tuple[Result, Result], ...]
    mismatches: tuple[Mismatch, ...]
    only_first: tuple[Result, ...]
    only_second: tuple[Result, ...]


def match(first: Run, second: Run) -> Matching:
    """Pairs of results with equal conditions. ``UsageError`` if the runs have no common result."""
    ours, theirs = _by_identity(first), _by_identity(second)
    pairs = [(result, theirs[key]) for key, result in ours.items() if key in theirs]
    left = [result for key, result in ours.items() if key not in theirs]
    rest = [result for key, result in theirs.items() if key not in ours]
    mismatches = _mismatches(left, rest)
    _check_common(first, second, pairs, mismatches)
    mismatched = {id(side) for mismatch in mismatches for side in (mismatch.first, mismatch.second)}
    return Matching(
        pairs=tuple(pairs),
        mismatches=tuple(mismatches),
        only_first=tuple(result for result in left if id(result) not in mismatched),
        only_second=tuple(result for result in rest if id(result) not in mismatched),
    )


def _by_identity(run: Run) -> dict[Identity, Result]:
    results: dict[Identity, Result] = {}
    for result in run.results:
        key: Identity = (result.name, *result.conditions.items())
        if key in results:
            raise UsageError(
                f"--compare: {run.path} has two results of {result.title}; compare runs that have one of each"
            )
        results[key] = result
    return results


def differences(first: Result, second: Result) -> tuple[Difference, ...]:
    """The conditions with different values."""
    return tuple(
        (name, value or "none", second.conditions[name] or "none")
        for name, value in first.conditions.items()
        if second.conditions[name] != value
    )


def machine_differences(first: Result, second: Result) -> tuple[Difference, ...]:
    """The facts of the machine that both state with different values."""
    return tuple(
        (name, value, second.machine[name])
        for name, value in first.machine.items()
        if second.machine.get(name, value) != value
    )


def _mismatches(left: Iterable[Result], rest: Sequence[Result]) -> list[Mismatch]:
    """For each unmatched result: the nearest result of the same model and compiler, each used once."""
    by_name: dict[str, list[Result]] = {}
    for other in rest:
        by_name.setdefault(other.name, []).append(other)
    mismatches: list[Mismatch] = []
    for result in left:
        others = by_name.get(result.name, [])
        near = [Mismatch(first=result, second=o, differences=differences(result, o)) for o in others]
        near = [m for m in near if not {name for name, _, _ in m.differences} & set(SAME_SUBJECT)]
        if near:
            best = min(near, key=lambda mismatch: len(mismatch.differences))
            others.remove(best.second)
            mismatches.append(best)
    return mismatches


def _check_common(first: Run, second: Run, pairs: Sequence[object], mismatches: Sequence[Mismatch]) -> None:
    """Raises ``UsageError`` if there is nothing to compare."""
    if pairs:
        return
    here, there = f"{first.path} and {second.path}", "compare two runs of the same models"
    if mismatches:
        name, old, new = mismatches[0].differences[0]
        what = plain(mismatches[0].first.name)
        raise UsageError(
            f"--compare: {here} measured nothing in the same way (of {what}, {name} is {old} in the first "
            f"and {new} in the second); {there} under the same conditions"
        )
    names = {result.name for result in first.results} & {result.name for result in second.results}
    if not names:
        raise UsageError(f"--compare: {here} share no model; {there}")
    for name in SAME_SUBJECT:
        values = [{r.conditions[name] for r in run.results} for run in (first, second)]
        if not values[0] & values[1]:
            old, new = (", ".join(sorted(names)) for names in values)
            raise UsageError(
                f"--compare: {here} share models but no {name} ({old} in the first, {new} in the second); "
                f"{there} with the same {name}"
            )
    raise UsageError(f"--compare: {here} share no model with the same compiler in the same mode; {there}")
