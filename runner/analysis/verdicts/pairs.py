"""Candidate against candidate: the ratio of two candidates of a job, from the rounds that timed both."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Container, Iterable, Mapping, Sequence

from harness.backends.settings.candidates import plain_of
from harness.schema import Record, Samples
from runner.analysis.estimate import PairedEstimate
from runner.analysis.ratios import judged
from runner.analysis.results import OVER_PLAIN, PAIRS, STEP, Ratio
from runner.analysis.verdicts.between import ASSUMED_ACROSS
from runner.analysis.verdicts.decision import Between, judged_or_none
from runner.analysis.verdicts.family import assumed_of
from runner.plan.environments.spec import EAGER

FEWEST = 6  # shared rounds; fewer have no interval

Round = tuple[int, float, float]
"""The process, the number of the round in it (older records: eager's time), and eager's time: sessions of a
job that ran one after the other count their rounds from 0.
"""


def candidate_pairs(steps: Sequence[Ratio]) -> tuple[Ratio, ...]:
    """Every two candidates of a job that passed and share rounds, without the A/A control.

    ``steps``: over eager. Two candidates of different environments are in processes of their own, so below
    ``LEAST_ACROSS`` processes their verdict is withheld.
    """
    jobs: dict[str, list[Ratio]] = {}
    for step in steps:
        if step.counts and step.first.name != EAGER:
            jobs.setdefault(step.record.job.key, []).append(step)
    both = (pair for members in jobs.values() for pair in itertools.combinations(members, 2))
    return judged([row for pair in both if (row := _row(*pair, family=PAIRS)).estimate is not None])


def over_plain(steps: Sequence[Ratio]) -> dict[tuple[str, str], Ratio]:
    """Of each candidate with settings, by job and candidate, the ratio over itself without them."""
    named = {(step.record.job.key, step.record.candidate): step for step in steps}
    plain = {(job, candidate): (job, plain_of(candidate)) for job, candidate in named}
    rows = {
        key: _row(named[key], named[other], family=OVER_PLAIN)
        for key, other in plain.items()
        if other != key and other in named
    }
    return {key: row for key, row in rows.items() if row.estimate is not None}


def _row(first: Ratio, second: Ratio, *, family: str) -> Ratio:
    return Ratio(
        family=family,
        quantity=STEP,
        place=first.place,
        record=first.record,
        other=second.record,
        first=first.first,
        second=second.first,
        estimate=_estimate(first.record, second.record),
        apart=first.record.env != second.record.env,
    )


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
