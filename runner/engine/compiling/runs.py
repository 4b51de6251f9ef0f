"""``--compile-runs K``: K cold and K warm compilations of each candidate, each in a fresh process.

A round compiles every candidate once from empty caches, one after another in a random order, then every
candidate again from the caches that its cold compilation has filled. So candidates, and environments, meet
the same state of the machine, and a round makes pairs. The caches of a round are deleted after it.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

from harness.schema import COLD, WARM, Compilation, Job, Record
from harness.timing.measure import round_order
from runner.analysis.verdicts.compiling import LATENCY
from runner.engine import Pause
from runner.plan.environments.plan import EAGER, split_candidate

Compile = Callable[[Job, Path], Iterator[Record | Pause]]
"""Compiles the only candidate of a job in a fresh process, whose compile caches are in this folder."""

Compilations = dict[str, tuple[Compilation, ...]]


def compile_runs(job: Job, run: Compile, folder: Path, stop: Callable[[], bool]) -> Compilations:
    """The compilations by candidate. A candidate that fails once is not compiled again."""
    found: Compilations = {name: () for name in job.candidates if _has_compiler(job, name)}
    going = set(found)
    for number in range(job.extras.compile_runs):
        order = round_order(tuple(found), job.protocol, number)
        for start in (COLD, WARM):
            for place, candidate in enumerate(order):
                if stop():
                    return found
                if candidate in going:
                    caches = folder / str(place)
                    caches.mkdir(exist_ok=True)
                    record = next(
                        (r for r in [*run(_alone(job, candidate), caches)] if isinstance(r, Record)), None
                    )
                    if record is None:
                        continue  # ``stop()`` became true, or an interrupted run has its record
                    found[candidate] += (_compilation(record, start, number),)
                    if LATENCY not in record.metrics:
                        going.remove(candidate)
        for caches in folder.iterdir():
            shutil.rmtree(caches, ignore_errors=True)
    return found


def _has_compiler(job: Job, candidate: str) -> bool:
    compiler = split_candidate(job, candidate)[0] if job.environments else candidate
    return compiler != EAGER and candidate not in job.unavailable and not job.case.skip


def _alone(job: Job, candidate: str) -> Job:
    """The job that only compiles this candidate, in its own environment."""
    own = (split_candidate(job, candidate)[1],) if job.environments else ()
    protocol = replace(job.protocol, accuracy=False, performance=False)
    return replace(job, candidates=(candidate,), environments=own, protocol=protocol)


def _compilation(record: Record, start: str, number: int) -> Compilation:
    failed = "" if record.failure is None else f"{record.failure.kind}: {record.failure.message}"
    return Compilation(
        start=start, round=number, metrics=record.metrics, status=record.status, failure=failed
    )
