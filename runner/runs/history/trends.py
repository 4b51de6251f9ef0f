"""What several runs measured on one machine: lines over time, and the statuses that changed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from runner.runs.history.runs import Group, Run


@dataclass(frozen=True, slots=True, kw_only=True)
class Trend:
    """One suite, mode, precision and device on one machine: points by compiler, oldest first."""

    title: str
    lines: Mapping[str, Sequence[tuple[Run, Group]]]


def trends(runs: Sequence[Run]) -> list[Trend]:
    """The trends of everything that several runs measured on one machine, the latest first."""
    keyed: dict[tuple[str, str], dict[str, list[tuple[Run, Group]]]] = {}
    for run in runs:  # oldest first: a key that is measured again moves to the end
        for group in run.numbers.groups:
            key = (group.what, run.numbers.machine)
            lines = keyed[key] = keyed.pop(key, {})
            lines.setdefault(group.compiler, []).append((run, group))
    return [
        Trend(title=f"{what} on {machine}" if machine else what, lines=lines)
        for (what, machine), lines in reversed(keyed.items())
        if any(len(points) > 1 for points in lines.values())
    ]


def status_changes(runs: Sequence[Run]) -> Iterator[str]:
    """A sentence for each result of the newest run that passes or fails otherwise than in the run before.

    The run before is the latest earlier run with this result.
    """
    *earlier, newest = runs
    for name, status in newest.numbers.statuses.items():
        before = next((run for run in reversed(earlier) if name in run.numbers.statuses), None)
        if before is not None and before.numbers.statuses[name].passed != status.passed:
            was = before.numbers.statuses[name]
            yield f"{name}: {was.value} in {before.name}, {status.value} in {newest.name}"
