"""Splits a plan into parts with equally many jobs. The same flags give the same parts on every machine."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from harness.codec import to_json
from harness.schema import Job
from harness.settings import WHOLE, Group, by_flag
from runner.names import counted

_select = partial(by_flag, group=Group.SELECTION)


@dataclass(frozen=True, slots=True, kw_only=True)
class Partition:
    """Part ``index`` (from 0) of ``total``; None: the whole plan."""

    total: int | None = _select(
        None,
        "--total-partitions=N",
        help="split the plan into N parts with equally many jobs, for as many machines",
    )
    index: int | None = _select(
        None,
        "--partition-id=I",
        kind=WHOLE,
        help="the part to run, from 0 to N-1; join the runs afterwards with --merge",
    )


def our_part(partition: Partition, jobs: Sequence[Job]) -> tuple[Job, ...]:
    """The jobs of this part, in the plan's order. Prints a message if there are none."""
    if partition.total is None or partition.index is None:
        return tuple(jobs)
    part = _part(jobs, partition.index, partition.total)
    if not part:
        where = f"in part {partition.index} of {partition.total}"
        print(f"Nothing to do {where}: the plan has {counted(len(jobs), 'job')} in all.", file=sys.stderr)
    return part


def part_facts(partition: Partition, plan: Sequence[Job]) -> dict[str, Any]:
    """The whole plan for ``run.json``, so that merged runs show which part is missing."""
    if partition.total is None:
        return {}
    return {"partition": {"id": partition.index, "total": partition.total}, "plan": to_json(tuple(plan))}


def balanced(jobs: Sequence[Job], parts: int) -> tuple[tuple[Job, ...], ...]:
    """Every job in one of ``parts`` parts, dealt out by a hash of its name: on every machine the same."""
    return tuple(_part(jobs, part, parts) for part in range(parts))


def _part(jobs: Sequence[Job], index: int, total: int) -> tuple[Job, ...]:
    def shuffled(job: Job) -> bytes:
        name = replace(job, case=replace(job.case, suite=Path(job.case.suite).name)).key
        return hashlib.sha256(name.encode()).digest()

    # first those that are measured, then the skipped ones
    order = sorted(range(len(jobs)), key=lambda i: (bool(jobs[i].case.skip), shuffled(jobs[i]), i))
    return tuple(jobs[i] for i in sorted(order[index::total]))
