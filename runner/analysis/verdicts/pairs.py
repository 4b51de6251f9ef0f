"""Candidate against candidate: the ratio of two candidates of a job, from the rounds that timed both."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Container, Iterable, Mapping, Sequence

from harness.backends.settings.candidates import plain_of
from harness.loading.own_model import suite_of
from harness.schema import Record, Samples
from runner.analysis.comparison import CONTROL, CandidatePair, Comparison, CompilerRatio
from runner.analysis.estimate import Limits, PairedEstimate
from runner.analysis.statistics import false_discovery, geomean
from runner.analysis.verdicts.between import ASSUMED_ACROSS
from runner.analysis.verdicts.decision import Between, judged_or_none
from runner.analysis.verdicts.family import assumed_of
from runner.analysis.verdicts.reasons import judgment

FEWEST = 6  # shared rounds; fewer have no interval

Round = tuple[int, float, float]
"""The process, the number of the round in it (older records: eager's time), and eager's time: sessions of a
job that ran one after the other count their rounds from 0.
"""


def candidate_pairs(comparisons: Sequence[Comparison]) -> tuple[CandidatePair, ...]:
    """Every two candidates of a job that passed and share rounds, without the A/A control.

    The family of q is all pairs. Two candidates of different environments are in processes of their own, so
    below ``LEAST_ACROSS`` processes their verdict is withheld.
    """
    jobs: dict[str, list[Comparison]] = {}
    for comparison in comparisons:
        if comparison.record.status.passed and comparison.n and comparison.compiler != CONTROL:
            jobs.setdefault(comparison.record.job.key, []).append(comparison)
    both = (pair for members in jobs.values() for pair in itertools.combinations(members, 2))
    estimates = [
        (pair, estimate) for pair in both if (estimate := _estimate(*(side.record for side in pair)))
    ]
    q_values = false_discovery([estimate.p_value for _, estimate in estimates])
    return tuple(_pair(*pair, estimate, q) for (pair, estimate), q in zip(estimates, q_values, strict=True))


def over_plain(records: Sequence[Record]) -> list[PairedEstimate | None]:
    """The speedup of each candidate with settings over the same candidate without them, where it ran."""
    plain = {(record.job.key, record.candidate): record for record in records}
    others = ((record, plain_of(record.candidate)) for record in records)
    return [
        _estimate(record, plain[record.job.key, name])
        if name != record.candidate and (record.job.key, name) in plain
        else None
        for record, name in others
    ]


def compiler_ratios(pairs: Iterable[CandidatePair]) -> tuple[CompilerRatio, ...]:
    """The geometric mean of each two compilers' ratios, over the models that both passed."""
    groups: dict[tuple[str, str, str, str, str, str], list[PairedEstimate]] = {}
    for pair in pairs:
        job, compilers = pair.first.record.job, (pair.first.compiler, pair.second.compiler)
        if job.case.point:
            continue  # a model's points are not several models
        key = (suite_of(job.case.suite), job.case.mode.value, pair.first.device, job.dtype, *compilers)
        groups.setdefault(key, []).extend([pair.estimate] if pair.estimate is not None else [])
    return tuple(CompilerRatio(*key, mean=geomean(estimates)) for key, estimates in groups.items())


def _estimate(first: Record, second: Record) -> PairedEstimate | None:
    """The speedup of the first over the second, from the rounds that timed both: the second's time / its own.

    None with fewer than ``FEWEST`` shared rounds, and for times that cannot be used.
    """
    if first.samples is None or second.samples is None:
        return None
    apart = first.env != second.env
    before, after = (rounds_of(side, apart=apart) for side in (second.samples, first.samples))
    shared, by_process = timed_in_both(before, after)
    if len(shared) < FEWEST:
        return None
    baseline_s, candidate_s = ([side[key] for key in shared] for side in (before, after))
    tau = ASSUMED_ACROSS if first.env != second.env else math.hypot(assumed_of(first), assumed_of(second))
    return judged_or_none(baseline_s, candidate_s, by_process, Between(assumed_sd=tau))


def timed_in_both(before: Iterable[Round], after: Container[Round]) -> tuple[list[Round], tuple[int, ...]]:
    """The rounds that timed both sides, in the order of ``before``, and how many each process has.

    The numbers are () for one process, as in ``judged``.
    """
    shared = [key for key in before if key in after]
    counts = Counter(key[0] for key in shared)
    return shared, tuple(counts[number] for number in sorted(counts)) if len(counts) > 1 else ()


def rounds_of(samples: Samples, *, apart: bool = False) -> Mapping[Round, float]:
    """The candidate's times."""
    return dict(zip(keys_of(samples, apart=apart), samples.candidate_s, strict=False))


def keys_of(samples: Samples, *, apart: bool = False) -> list[Round]:
    """Candidates of one session share eager's time of a round; with environments, the reference's.

    ``apart``: of two environments, which share no eager if the reference has failed.
    """
    own = (0.0,) * len(samples) if apart else samples.baseline_s
    eager = samples.reference_s if len(samples.reference_s) == len(samples) else own
    numbers = samples.round_index or samples.baseline_s
    return list(zip(samples.process_of_round, numbers, eager, strict=False))


def _pair(
    first: Comparison, second: Comparison, estimate: PairedEstimate, q_value: float | None
) -> CandidatePair:
    apart, limits = first.record.env != second.record.env, Limits.of(first.record.job.protocol)
    word, opened = judgment(estimate, q_value, limits, across=apart)
    return CandidatePair(
        first=first,
        second=second,
        estimate=estimate,
        q_value=q_value,
        verdict=word,
        open=opened,
    )
