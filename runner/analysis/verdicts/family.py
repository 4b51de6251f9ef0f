"""The estimates of a run's records: each with what the other records tell about processes."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

import numpy as np

from harness.devices import of
from harness.schema import Job, Record, of_environment
from runner.analysis.results import PairedEstimate
from runner.analysis.statistics import Column
from runner.analysis.verdicts.between import ASSUMED_ACROSS, SHORT_STEP_S, assumed_tau
from runner.analysis.verdicts.decision import Spread, judged_or_none, pool_of, spread_of
from runner.labels import device_labels
from runner.plan.environments.spec import EAGER, split_candidate

FAULTS = 10  # page faults of a median step, below which malloc's settings hardly change its time

Group = tuple[str, str, str, str, bool]
"""(compiler, mode, device, precision, has page faults): models whose variance between processes is pooled.

Chance decides in each process which memory glibc gives back, so models with page faults vary more.
"""


def estimates_of(records: Sequence[Record]) -> list[PairedEstimate | None]:
    """One estimate for each record; None without samples, and for samples that cannot be used."""
    spreads: dict[Group, list[Spread]] = {}
    groups = [*map(_group, records, device_labels(records))]
    for record, group in zip(records, groups, strict=True):
        samples = record.samples
        spread = samples and spread_of(samples.baseline_s, samples.candidate_s, samples.rounds_by_process)
        if spread:
            spreads.setdefault(group, []).append(spread)
    taus = [assumed_of(record) for record in records]
    pools = [pool_of(spreads[g], tau) if g in spreads else None for g, tau in zip(groups, taus, strict=True)]
    return [
        None
        if (s := record.samples) is None
        else judged_or_none(s.baseline_s, s.candidate_s, s.rounds_by_process, tau, pool)
        for record, tau, pool in zip(records, taus, pools, strict=True)
    ]


def assumed_of(record: Record) -> float:
    """tau of the record's candidate: that of the record, or today's where the record is older."""
    known = record.assumed_between_sd
    return assumed_today(record) if known is None else known


def assumed_today(record: Record) -> float:
    """tau that the record's samples would get today, whatever the record has."""
    baseline_s = () if record.samples is None else record.samples.baseline_s
    return assumed_in(record.job, record.candidate, baseline_s)


def assumed_in(job: Job, candidate: str, baseline_s: Column) -> float:
    """tau of a candidate of a job over its own baseline, as assumed today. ``baseline_s``: eager's times."""
    compiler = candidate
    if job.environments and candidate in job.candidates:
        compiler, _ = split_candidate(job, candidate)
        if compiler == EAGER:
            return ASSUMED_ACROSS  # its baseline is the reference environment's eager, another process
    return assumed_tau(
        compiler,
        job.case.mode.value,
        short=is_short(job, baseline_s),
        several_threads=job.protocol.threads != 1,
        control=job.baseline_dtype in (None, job.dtype),
    )


def is_short(job: Job, baseline_s: Column) -> bool:
    """Whether eager's step on a CPU is short. Without times, it is not."""
    if not len(baseline_s) or of(job.device).accelerated:
        return False
    return float(np.median(baseline_s)) < SHORT_STEP_S


def _group(record: Record, device: str) -> Group:
    samples = record.samples
    sides = (samples.baseline_minor_faults, samples.candidate_minor_faults) if samples else ()
    faults = any(median(side) >= FAULTS for side in sides if side)
    return record.candidate, record.job.case.mode.value, device, record.job.dtype, faults


def is_compiled(record: Record) -> bool:
    """Whether the candidate is no eager: neither the control, nor in another precision or environment."""
    return record.candidate != EAGER and not is_eager_of(record)


def is_eager_of(record: Record) -> bool:
    """Whether the candidate is eager of an environment, so that nothing is compiled."""
    return bool(record.env) and record.candidate == of_environment(EAGER, record.env)
