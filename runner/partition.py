"""Splits a plan into parts of about equal time, the same on every machine that is given the same flags."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.codec import to_json
from harness.schema import Job
from runner.errors import UsageError
from runner.expected_time import Expected, estimated_s, name_without_path, timings


@dataclass(frozen=True, slots=True, kw_only=True)
class Partition:
    """Part ``index`` (from 0) of ``total``; ``timings`` is the folder of an earlier run, to judge by."""

    index: int
    total: int
    timings: Path | None = None


def partition_asked(total: int | None, index: int | None, timings_folder: str | None) -> Partition | None:
    """The part that the flags name; None for the whole plan. ``UsageError`` when they do not fit."""
    if index is not None and total is None:
        raise UsageError("--partition-id needs --total-partitions: say how many parts there are")
    if total is None:
        if timings_folder is not None:
            raise UsageError("--timings is for --total-partitions; leave it out, or say how many parts")
        return None
    if index is None:
        raise UsageError(f"--total-partitions needs --partition-id: say which part to run, 0 to {total - 1}")
    if index >= total:
        raise UsageError(f"--partition-id: there is no part {index} of {total}; choose from 0 to {total - 1}")
    return Partition(index=index, total=total, timings=Path(timings_folder) if timings_folder else None)


def part_of(jobs: Sequence[Job], partition: Partition | None) -> tuple[Job, ...]:
    """The jobs of this part, in the plan's order; () when the plan is too short to reach it.

    Raises ``UsageError`` when the earlier run says nothing about times.
    """
    if partition is None:
        return tuple(jobs)
    expected = expected_by(partition.timings) if partition.timings is not None else estimated_s
    return balanced(jobs, partition.total, expected)[partition.index]


def nothing_in(partition: Partition, planned: int) -> str:
    """The sentence for an empty part of a plan of ``planned`` jobs."""
    plan = f"{planned} job" + "s" * (planned != 1)
    return f"Nothing to do in part {partition.index} of {partition.total}: the plan has {plan} in all."


def part_facts(partition: Partition | None, plan: Sequence[Job]) -> dict[str, Any]:
    """What ``run.json`` keeps of the whole plan, so that runs joined later show which part is missing."""
    if partition is None:
        return {}
    place = {"id": partition.index, "total": partition.total}
    return {"partition": place, "plan": to_json(tuple(plan))}


def balanced(
    jobs: Sequence[Job], parts: int, expected: Expected = estimated_s
) -> tuple[tuple[Job, ...], ...]:
    """Every job in exactly one of ``parts`` parts, each part in the order of ``jobs``.

    Longest processing time first: each job, longest first, goes to the part with the least work so
    far (Graham 1969), so the fullest part is at most 4/3 - 1/(3 parts) of the best possible. Jobs of
    equal length are taken by name: neither the plan's order nor a suite's folder changes anything.
    """
    order = sorted(range(len(jobs)), key=lambda i: (-expected(jobs[i]), name_without_path(jobs[i]), i))
    members: list[list[int]] = [[] for _ in range(parts)]
    work_s = [0.0] * parts
    for i in order:
        least = min(range(parts), key=lambda part: (work_s[part], len(members[part])))
        members[least].append(i)
        work_s[least] += expected(jobs[i])
    return tuple(tuple(jobs[i] for i in sorted(part)) for part in members)


def expected_by(folder: Path) -> Expected:
    """Expected times by the records of an earlier run. ``UsageError`` when they say nothing."""
    from runner.run_folder import RunFolder

    found = timings(RunFolder.reopen("--timings", folder).read().records)
    if found is None:
        raise UsageError(f"--timings: no record in {folder} says how long a job took; name a finished run")
    return found.expected_s
