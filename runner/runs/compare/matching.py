"""Matches the results of two runs."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from runner.errors import UsageError
from runner.runs.compare.run import Result, Run

Pairs = Sequence[tuple[Result, Result]]

Difference = tuple[str, str, str]
"""(name of the condition, value in A, value in B)"""

SAME_SUBJECT = ("suite", "mode", "compiler")
"""Results that differ in one of these are different subjects, not one subject under two conditions."""


Mismatch = tuple[Result, Result, tuple[Difference, ...]]
"""A model that both runs measured with one compiler, but under different conditions."""


def match(
    first: Run, second: Run
) -> tuple[list[tuple[Result, Result]], list[Mismatch], list[Result], list[Result]]:
    """Pairs of results with equal conditions, mismatches, and what only A or only B has.

    A mismatch is a result with the nearest one of the same subject. Each result appears once. Raises
    ``UsageError`` if the runs have no common result.
    """
    ours, theirs = _by_identity(first), _by_identity(second)
    subjects: dict[tuple[str, ...], list[Result]] = {}
    for key, result in theirs.items():
        if key not in ours:
            subjects.setdefault(_subject(result), []).append(result)
    pairs, mismatches, only_first = [], [], []
    for key, result in ours.items():
        others = subjects.get(_subject(result), [])
        if key in theirs:
            pairs.append((result, theirs[key]))
        elif same := next((other for other in others if _batch_is_unknown(result, other)), None):
            others.remove(same)
            pairs.append((result, same))
        elif not others:
            only_first.append(result)
        else:
            nearest = min(others, key=lambda other: len(differences(result, other)))
            others.remove(nearest)
            mismatches.append((result, nearest, differences(result, nearest)))
    if not pairs:
        raise _nothing_in_common(first, second, mismatches)
    return pairs, mismatches, only_first, list(itertools.chain(*subjects.values()))


def _batch_is_unknown(first: Result, second: Result) -> bool:
    """Whether they differ in the batch alone, of which a result that failed early has the planned one."""
    planned = {side.record.job.case.batch_size for side in (first, second)}
    unknown = first.record.model is None or second.record.model is None
    names = [name for name, *_ in differences(first, second)]
    return unknown and len(planned) == 1 and names == ["batch size"]


def _subject(result: Result) -> tuple[str, ...]:
    return result.name, *(result.conditions[name] for name in SAME_SUBJECT)


def _by_identity(run: Run) -> dict[tuple[object, ...], Result]:
    results: dict[tuple[object, ...], Result] = {}
    for result in run.results:
        key = (result.name, *result.conditions.items())
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
    there = second.machine
    return tuple(
        (name, value, there[name]) for name, value in first.machine.items() if there.get(name, value) != value
    )


def _nothing_in_common(first: Run, second: Run, mismatches: Sequence[Mismatch]) -> UsageError:
    here, there = f"--compare: {first.path} and {second.path}", "compare two runs of the same models"
    if mismatches:
        result, _, ((name, old, new), *_) = mismatches[0]
        return UsageError(
            f"{here} measured nothing in the same way (of {result.name}, {name} is {old} in the first and "
            f"{new} in the second); {there} under the same conditions"
        )
    if not {result.name for result in first.results} & {result.name for result in second.results}:
        return UsageError(f"{here} share no model; {there}")
    for name in SAME_SUBJECT:
        before, after = ({result.conditions[name] for result in run.results} for run in (first, second))
        if not before & after:
            values = f"{', '.join(sorted(before))} in the first, {', '.join(sorted(after))} in the second"
            return UsageError(f"{here} share models but no {name} ({values}); {there} with the same {name}")
    return UsageError(f"{here} share no model with the same compiler in the same mode; {there}")
