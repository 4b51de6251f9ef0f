"""How long the jobs of a plan are expected to compile, from earlier runs beside the new one.

The index of runs has the compilation latency of each result. It decides in which order jobs begin, nothing
else: see ``runner.engine.executors.order``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median

from harness.schema import Job
from runner.labels import plain, suite_labels
from runner.plan.partition import COMPILE_S, OTHER_COMPILER_S, Expected, Timings, model_of, name_without_path
from runner.runs.compare.run import conditions
from runner.runs.history.index import INDEX, UNREADABLE, latest_results

MOST_RESULTS = 5_000  # of the latest runs: reading them takes a fraction of a second

Seconds = dict[str, float]
"""Compilation latency by compiler."""


def expected_beside(folder: Path, jobs: Sequence[Job]) -> Expected | None:
    """Expected times from the runs in ``folder``; None if they do not know any of these models."""
    path = folder / INDEX
    if len(jobs) < 2 or not path.is_file():
        return None
    labels = suite_labels(job.case.suite for job in jobs)
    names = {plain(job.case.name) for job in jobs}
    try:
        results = latest_results(path, labels.values(), names, MOST_RESULTS)
    except UNREADABLE:
        return None  # an order is no reason to end a run, and --history names what is wrong with the index
    by_conditions: dict[tuple[str, ...], Seconds] = {}
    for result in results:
        if result.compile_s is not None:
            by_conditions.setdefault(_key(result.name, result.conditions), {}).setdefault(
                result.compiler, result.compile_s
            )
    ratios = {key: ratio for key, found in by_conditions.items() if (ratio := _ratio(found))}
    if not ratios:
        return None
    by_job, by_model = {}, {}
    for job in jobs:
        planned = conditions(job, labels[job.case.suite], "", job.case.batch_size)
        known = _key(plain(job.case.name), dict(planned))
        if known in ratios:
            by_job[name_without_path(job)] = ratios[known]
        if alike := [ratio for key, ratio in ratios.items() if key[:3] == known[:3]]:
            by_model[model_of(job)] = median(alike)
    return Timings(by_job=by_job, by_model=by_model, overall=median(ratios.values())).expected_s


def _ratio(found: Seconds) -> float:
    """Measured time / estimated time of these compilers; 0 if none of them compiles."""
    estimated_s = sum(COMPILE_S.get(compiler, OTHER_COMPILER_S) for compiler in found)
    return sum(found.values()) / estimated_s if estimated_s else 0.0


def _key(model: str, known: Mapping[str, str]) -> tuple[str, ...]:
    """Suite, name and mode, then the other conditions of a job."""
    others = ("device", "precision", "scale", "batch size", "changes", "options")
    return (known.get("suite", ""), model, *(known.get(name, "") for name in ("mode", *others)))
