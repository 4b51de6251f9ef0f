"""The estimates of a run's records: each with what the other records tell about processes."""

from __future__ import annotations

from collections.abc import Sequence

from harness.schema import Job, Record, Samples
from runner.analysis.estimate import PairedEstimate
from runner.analysis.verdicts.between import ASSUMED_ACROSS, assumed_sd, pooled
from runner.analysis.verdicts.decision import Between, judged_or_none, spread_of
from runner.plan.environments.plan import EAGER, split_candidate

Group = tuple[str, str, str, str]
"""(compiler, mode, device, precision): the models whose variance between processes is pooled."""


def estimates_of(records: Sequence[Record]) -> list[PairedEstimate | None]:
    """One estimate for each record; None without samples, and for samples that cannot be used."""
    between = between_of(records)
    return [_estimate(record, one) for record, one in zip(records, between, strict=True)]


def _estimate(record: Record, between: Between) -> PairedEstimate | None:
    samples = record.samples
    if samples is None:
        return None
    return judged_or_none(samples.baseline_s, samples.candidate_s, samples.rounds_by_process, between)


def between_of(records: Sequence[Record]) -> list[Between]:
    """For each record: the assumed tau, and the pool of its group."""
    groups: dict[Group, list[tuple[float, int]]] = {}
    within: dict[Group, list[float]] = {}
    for record in records:
        found = _spread(record.samples)
        if found is not None:
            spread, count, explained = found
            groups.setdefault(_group(record), []).append((spread, count))
            within.setdefault(_group(record), []).append(explained)
    each = []
    for record in records:
        assumed, group = assumed_of(record), _group(record)
        if group not in groups:
            each.append(Between(assumed_sd=assumed))
            continue
        explained = sum(within[group]) / len(within[group])
        each.append(Between(assumed_sd=assumed, pool=pooled(groups[group], assumed**2 + explained)))
    return each


def assumed_of(record: Record) -> float:
    """tau of the record's candidate: that of the record, or today's where the record is older."""
    known = record.assumed_between_sd
    return assumed_in(record.job, record.candidate) if known is None else known


def assumed_in(job: Job, candidate: str) -> float:
    """tau of a candidate of a job over its own baseline, as assumed today."""
    compiler = candidate
    if job.environments and candidate in job.candidates:
        compiler, _ = split_candidate(job, candidate)
        if compiler == EAGER:
            return ASSUMED_ACROSS  # its baseline is the reference environment's eager, another process
    control = compiler == EAGER and job.baseline_dtype in (None, job.dtype)
    return assumed_sd(compiler, job.case.mode.value, control=control)


def _spread(samples: Samples | None) -> tuple[float, int, float] | None:
    if samples is None:
        return None
    return spread_of(samples.baseline_s, samples.candidate_s, samples.rounds_by_process)


def _group(record: Record) -> Group:
    job = record.job
    return record.candidate, job.case.mode.value, job.device, job.dtype
