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

HOW = "name the file {compiler}_{suite}_{dtype}_{mode}_{device}_performance.csv, or give it such columns"


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
    """Pairs of results that have equal values in every condition that both state.

    Raises ``UsageError`` if a file lacks conditions that identify a result, or if the runs have no
    common result.
    """
    theirs: dict[str, list[Result]] = {}
    for result in second.results:
        theirs.setdefault(result.name, []).append(result)
    pairs: list[tuple[Result, Result]] = []
    taken: dict[int, Result] = {}
    left = []
    for result in first.results:
        fitting = [other for other in theirs.get(result.name, ()) if not differences(result, other)]
        if not fitting:
            left.append(result)
            continue
        if len(fitting) > 1:
            raise _ambiguous(first, result, fitting)
        if id(fitting[0]) in taken:
            raise _ambiguous(second, fitting[0], [taken[id(fitting[0])], result])
        taken[id(fitting[0])] = result
        pairs.append((result, fitting[0]))
    rest = [result for result in second.results if id(result) not in taken]
    mismatches = _mismatches(left, rest)
    _check_common(first, second, pairs, mismatches)
    ours, others = {id(m.first) for m in mismatches}, {id(m.second) for m in mismatches}
    return Matching(
        pairs=tuple(pairs),
        mismatches=tuple(mismatches),
        only_first=tuple(result for result in left if id(result) not in ours),
        only_second=tuple(result for result in rest if id(result) not in others),
    )


def differences(first: Result, second: Result) -> tuple[Difference, ...]:
    """The conditions that both state with different values."""
    return tuple(
        (name, value or "none", second.conditions[name] or "none")
        for name, value in first.conditions.items()
        if second.conditions.get(name, value) != value
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
    found: list[Mismatch] = []
    used: set[int] = set()
    for result in left:
        near = [
            Mismatch(first=result, second=other, differences=differences(result, other))
            for other in rest
            if other.name == result.name and id(other) not in used
        ]
        near = [m for m in near if not {name for name, _, _ in m.differences} & set(SAME_SUBJECT)]
        if near:
            best = min(near, key=lambda mismatch: len(mismatch.differences))
            used.add(id(best.second))
            found.append(best)
    return found


def _ambiguous(run: Run, result: Result, fitting: Sequence[Result]) -> UsageError:
    """The error that names the missing condition and the values of the other side."""
    unknown = [name for name in fitting[0].conditions if name not in result.conditions]
    for name in unknown:
        values = dict.fromkeys(other.conditions.get(name, "") for other in fitting)
        if len(values) > 1:
            return UsageError(
                f"--compare: {run.path} does not say the {name} of {plain(result.name)}, and the other side "
                f"has several ({', '.join(values)}); {HOW}"
            )
    return UsageError(
        f"--compare: {run.path} does not say which result of {plain(result.name)} is meant; {HOW}"
    )


def _check_common(first: Run, second: Run, pairs: Sequence[object], mismatches: Sequence[Mismatch]) -> None:
    """Raises ``UsageError`` if there is nothing to compare."""
    if pairs:
        return
    here, there = f"{first.path} and {second.path}", "compare two runs of the same models"
    if mismatches:
        name, one, other = mismatches[0].differences[0]
        what = plain(mismatches[0].first.name)
        raise UsageError(
            f"--compare: {here} measured nothing in the same way (of {what}, {name} is {one} in the first "
            f"and {other} in the second); {there} under the same conditions"
        )
    names = {result.name for result in first.results} & {result.name for result in second.results}
    if not names:
        raise UsageError(f"--compare: {here} share no model; {there}")
    for name in SAME_SUBJECT:
        values = [{r.conditions.get(name, "") for r in run.results} for run in (first, second)]
        if not values[0] & values[1]:
            one, other = (", ".join(sorted(found)) for found in values)
            raise UsageError(
                f"--compare: {here} share models but no {name} ({one} in the first, {other} in the second); "
                f"{there} with the same {name}"
            )
    raise UsageError(f"--compare: {here} share no model with the same compiler in the same mode; {there}")
