"""Splits a plan into parts of about equal time. The same flags give the same parts on every machine."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

from harness.codec import to_json
from harness.schema import Job, Record
from harness.settings import COUNT, WHOLE, Given, Group, Spelled, flag
from runner.errors import UsageError
from runner.labels import counted
from runner.plan.settings import value_of

_select = partial(flag, group=Group.SELECTION)
PARTS = _select(
    "--total-partitions",
    metavar="N",
    kind=COUNT,
    help="split the plan into N parts of about equal time, for as many machines",
)
PART = _select(
    "--partition-id",
    metavar="I",
    kind=WHOLE,
    help="the part to run, from 0 to N-1; join the runs afterwards with --merge",
)
TIMINGS = _select(
    "--timings",
    metavar="DIR",
    help="an earlier run, whose times predict how long each job takes; give the same run for every part",
)

# How long a job is expected to take. Only ratios between jobs matter. Without an earlier run, the estimate
# depends only on the job's candidates. The constants are medians over the 13 jobs of
# results/tiny_gpt-training-bfloat16-cpu (two cores, warm compile caches). They sum to 13.7 s per job; the
# median job took 14.8 s. Inductor's constant is for cold caches: 1.8 s with warm caches, plus 14 s, by which
# each of these jobs is longer with cold caches (about 6 minutes for the run instead of 3).
START_S = 5.2  # of one worker: imports, the model, eager's reference runs, parity, warm-up
VARIANT_S = 1.0  # timed rounds of one variant, including the baseline
COMPILE_S = {"eager": 0.0, "torchscript": 0.2, "aot_eager": 2.6, "inductor": 15.8}
OTHER_COMPILER_S = 2.6

Expected = Callable[[Job], float]
"""Seconds that a job is expected to take; 0 for a skipped job."""


def estimated_s(job: Job) -> float:
    """Seconds for the job's candidates, from the constants above."""
    if job.case.skip:
        return 0.0
    workers = len(job.candidates) if job.protocol.isolate else 1
    timed = (len(job.candidates) + workers) if job.protocol.performance else 0
    compiling = sum(COMPILE_S.get(name, OTHER_COMPILER_S) for name in job.candidates)
    return workers * START_S + compiling + timed * VARIANT_S


def name_without_path(job: Job) -> str:
    """The job's key without the folder of its suite's file: the same on every machine."""
    suite = Path(job.case.suite).name
    return replace(job, case=replace(job.case, suite=suite)).key


@dataclass(frozen=True, slots=True, kw_only=True)
class Timings:
    """Measured time / estimated time in an earlier run: per job, per model, and over all jobs."""

    by_job: Mapping[str, float]
    by_model: Mapping[tuple[str, str, str], float]
    overall: float

    def expected_s(self, job: Job) -> float:
        """The estimate times the ratio of this job, else of its model in this mode, else of all jobs.

        For a job with the same candidates as in the earlier run, this is the time that it took.
        """
        ratio = self.by_job.get(name_without_path(job))
        if ratio is None:
            ratio = self.by_model.get(model_of(job), self.overall)
        return estimated_s(job) * ratio


def timings(records: Iterable[Record]) -> Timings | None:
    """The timings in these records; None if no record has a usable time."""
    from statistics import median

    jobs: dict[str, list[Record]] = {}
    for record in records:
        jobs.setdefault(name_without_path(record.job), []).append(record)
    by_job = {}
    by_model: dict[tuple[str, str, str], list[float]] = {}
    for name, group in jobs.items():
        measured = replace(group[0].job, candidates=tuple(record.candidate for record in group))
        took_s, estimate_s = wall_s(group), estimated_s(measured)
        if took_s > 0 and estimate_s > 0:
            by_job[name] = took_s / estimate_s
            by_model.setdefault(model_of(measured), []).append(by_job[name])
    if not by_job:
        return None
    medians = {model: median(ratios) for model, ratios in by_model.items()}
    return Timings(by_job=by_job, by_model=medians, overall=median(by_job.values()))


def wall_s(records: Sequence[Record]) -> float:
    """Seconds that a job took, from its records; 0 if their times cannot be read.

    Records of one run of the job have the same start. A resumed job has several starts, which are summed.
    """
    ends: dict[str, float] = {}
    for record in records:
        try:
            lasted = datetime.fromisoformat(record.ended) - datetime.fromisoformat(record.started)
        except (ValueError, TypeError):
            continue  # a time without a zone, or an invalid time
        ends[record.started] = max(ends.get(record.started, 0.0), lasted.total_seconds())
    return sum(ends.values())


def model_of(job: Job) -> tuple[str, str, str]:
    """Suite, name and mode, the same on every machine."""
    return (Path(job.case.suite).name, job.case.name, job.case.mode.value)


@dataclass(frozen=True, slots=True, kw_only=True)
class Partition:
    """Part ``index`` (from 0) of ``total``. ``timings`` is the folder of an earlier run."""

    index: int
    total: int
    timings: Path | None = None


def partition_asked(total: int | None, index: int | None, timings_folder: str | None) -> Partition | None:
    """The part that the flags name; None for the whole plan. Raises ``UsageError`` if a flag is missing."""
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


def partition_given(given: Given, default: Any) -> Any:
    total, index = (
        value_of(one.shown, one.kind, given[one.key]) if one.key in given else None for one in (PARTS, PART)
    )
    return partition_asked(total, index, given.get(TIMINGS.key)) or default


def spelled_partition(value: Partition) -> Spelled:
    found: Spelled = [(PARTS, str(value.total)), (PART, str(value.index))]
    return found + ([(TIMINGS, str(value.timings))] if value.timings is not None else [])


def part_of(jobs: Sequence[Job], partition: Partition | None) -> tuple[Job, ...]:
    """The jobs of this part, in the plan's order; () if the plan has too few jobs.

    Raises ``UsageError`` if the earlier run has no usable times.
    """
    if partition is None:
        return tuple(jobs)
    expected = expected_by(partition.timings) if partition.timings is not None else estimated_s
    return balanced(jobs, partition.total, expected)[partition.index]


def our_part(partition: Partition | None, jobs: Sequence[Job]) -> tuple[Job, ...]:
    """The jobs of this part. Prints a message if there are none."""
    part = part_of(jobs, partition)
    if partition is not None and not part:
        plan = counted(len(jobs), "job")
        print(
            f"Nothing to do in part {partition.index} of {partition.total}: the plan has {plan} in all.",
            file=sys.stderr,
        )
    return part


def part_facts(partition: Partition | None, plan: Sequence[Job]) -> dict[str, Any]:
    """The whole plan for ``run.json``, so that merged runs show which part is missing."""
    if partition is None:
        return {}
    place = {"id": partition.index, "total": partition.total}
    return {"partition": place, "plan": to_json(tuple(plan))}


def balanced(
    jobs: Sequence[Job], parts: int, expected: Expected = estimated_s
) -> tuple[tuple[Job, ...], ...]:
    """Every job in exactly one of ``parts`` parts, each part in the order of ``jobs``.

    Longest processing time first (Graham 1969): each job, longest first, goes to the part with the
    least work so far. The largest part is then at most 4/3 - 1/(3 parts) of the optimum. Jobs of equal
    length are sorted by name, so the result does not depend on the plan's order or a suite's folder.
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
    """Expected times from the records of an earlier run. Raises ``UsageError`` without usable times."""
    from runner.store.run_folder import RunFolder

    found = timings(RunFolder.reopen("--timings", folder).read().records)
    if found is None:
        raise UsageError(f"--timings: no record in {folder} says how long a job took; name a finished run")
    return found.expected_s
