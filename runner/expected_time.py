"""How long a job is expected to take, for sharing a plan out fairly. Only ratios between jobs matter.

Without an earlier run all that is known of a job is how many candidates it has, and which. The
constants are medians over the 13 jobs of ``results/tiny_gpt-training-bfloat16-cpu`` (two cores, warm
compile caches): there they sum to 13.7 s a job, and the median job took 14.8 s. Inductor alone has
another figure: its 1.8 s with warm caches and the 14 s by which the run of these 13 jobs is longer a
job with cold ones (about 6 minutes instead of 3, as the README says). A model's own size is
unknown, and so not in it: with an earlier run it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path

from harness.schema import Job, Record

START_S = 5.2  # of one worker: imports, the model, eager's reference runs, parity, warm-up
VARIANT_S = 1.0  # timed rounds of one variant, the baseline among them
COMPILE_S = {"eager": 0.0, "torchscript": 0.2, "aot_eager": 2.6, "inductor": 15.8}
OTHER_COMPILER_S = 2.6

Expected = Callable[[Job], float]
"""Seconds that a job is expected to take; 0 for one that is skipped."""


def estimated_s(job: Job) -> float:
    """Seconds for the job as far as its candidates tell, by the constants above."""
    if job.case.skip:
        return 0.0
    workers = len(job.candidates) if job.protocol.isolate else 1
    timed = (len(job.candidates) + workers) if job.protocol.performance else 0
    compiling = sum(COMPILE_S.get(name, OTHER_COMPILER_S) for name in job.candidates)
    return workers * START_S + compiling + timed * VARIANT_S


def name_without_path(job: Job) -> str:
    """The job's key with no trace of where its suite's file lies: the same on every machine."""
    suite = Path(job.case.suite).name
    return replace(job, case=replace(job.case, suite=suite)).key


@dataclass(frozen=True, slots=True, kw_only=True)
class Timings:
    """How much longer than estimated an earlier run's jobs took: by job, by model, and all of them."""

    by_job: Mapping[str, float]
    by_model: Mapping[tuple[str, str, str], float]
    overall: float

    def expected_s(self, job: Job) -> float:
        """The estimate times the ratio seen for this job, else for its model in this mode, else for all.

        So a job with the candidates that it had then is expected to take what it took.
        """
        ratio = self.by_job.get(name_without_path(job))
        if ratio is None:
            ratio = self.by_model.get(_model(job), self.overall)
        return estimated_s(job) * ratio


def timings(records: Iterable[Record]) -> Timings | None:
    """What these records say about how long jobs take; None when no record says anything."""
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
            by_model.setdefault(_model(measured), []).append(by_job[name])
    if not by_job:
        return None
    medians = {model: median(ratios) for model, ratios in by_model.items()}
    return Timings(by_job=by_job, by_model=medians, overall=median(by_job.values()))


def wall_s(records: Sequence[Record]) -> float:
    """Seconds that a job took, from its records; 0 where their times cannot be read.

    Its records share their start; where a run was resumed there are several, and all count.
    """
    ends: dict[str, float] = {}
    for record in records:
        try:
            lasted = datetime.fromisoformat(record.ended) - datetime.fromisoformat(record.started)
        except (ValueError, TypeError):
            continue  # one time without a zone, or no time at all
        ends[record.started] = max(ends.get(record.started, 0.0), lasted.total_seconds())
    return sum(ends.values())


def _model(job: Job) -> tuple[str, str, str]:
    return (Path(job.case.suite).name, job.case.name, job.case.mode.value)
