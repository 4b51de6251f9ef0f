"""What several runs measured on one machine: lines over time, and the statuses that changed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from runner.runs.history.runs import Group, Run

Trend = Mapping[str, Sequence[tuple[Run, Group]]]
"""One suite, mode, precision and device on one machine: points by compiler, oldest first."""


def trends(runs: Sequence[Run]) -> dict[str, Trend]:
    """By title: everything that several runs measured on one machine, the latest first."""
    lines: dict[str, dict[str, list[tuple[Run, Group]]]] = {}
    for run in runs:  # oldest first: a title that is measured again moves to the end
        for group in run.numbers.groups:
            title = " on ".join(filter(None, (group["what"], run.numbers.machine)))
            lines[title] = lines.pop(title, {})
            lines[title].setdefault(group["compiler"], []).append((run, group))
    return {t: lines[t] for t in reversed(lines) if any(len(points) > 1 for points in lines[t].values())}


def status_changes(runs: Sequence[Run]) -> Iterator[str]:
    """A sentence for each result of the newest run that passes or fails otherwise than in the run before.

    The run before is the latest earlier run with this result.
    """
    *earlier, newest = runs
    before = {name: (run.name, status) for run in earlier for name, status in run.numbers.statuses.items()}
    for name, status in newest.numbers.statuses.items():
        run, was = before.get(name, ("", status))
        if was.passed != status.passed:
            yield f"{name}: {was.value} in {run}, {status.value} in {newest.name}"
