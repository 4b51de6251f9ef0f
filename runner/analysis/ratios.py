"""Everything that is said about speed is one type: two sides, and how many times as fast the first is.

The ratios of a family are judged together: q is Benjamini and Hochberg's over the family, and families do
not mix. Eager of an environment may be slower than eager of the reference environment, which a speedup over
the environment's own eager hides: the family ``REFERENCE`` shows it.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from statistics import median

import numpy as np

from harness.backends.settings.candidates import plain_of
from harness.loading.own_model import suite_of
from harness.schema import Record, Samples, Status, of_environment
from runner.analysis.results import (
    ALLOCATOR,
    DECODE,
    OVER_EAGER,
    OVER_PLAIN,
    PAIRS,
    PREFILL,
    REFERENCE,
    STEP,
    SYSTEM,
    Average,
    Estimate,
    PairedEstimate,
    Place,
    Ratio,
    Side,
    same_results,
)
from runner.analysis.statistics import false_discovery, geomean
from runner.analysis.verdicts import Limits
from runner.analysis.verdicts.between import ASSUMED_ACROSS, assumed_of
from runner.analysis.verdicts.decision import Spread, difference, judged_or_none, judgment, pool_of, spread_of
from runner.names import compiler_label, device_labels
from runner.plan.environments.spec import EAGER, split_candidate

FAULTS = 10  # page faults of a median step, below which malloc's settings hardly change its time

Group = tuple[str, str, str, str, bool]
"""(compiler, mode, device, precision, has page faults): models whose variance between processes is pooled.

Chance decides in each process which memory glibc gives back, so models with page faults vary more.
"""


def judged(ratios: Sequence[Ratio], *, passed: bool = False) -> tuple[Ratio, ...]:
    """The ratios of one family with q, verdict and reason. ``passed``: only those that did are in it."""
    tested = [r.estimate if r.record.status.passed or not passed else None for r in ratios]
    q_values = false_discovery([estimate.p_value if estimate else None for estimate in tested])
    rows = []
    for ratio, q_value in zip(ratios, q_values, strict=True):
        limits = Limits.of(*(side.job.protocol for side in (ratio.record, ratio.other) if side))
        word, opened = judgment(ratio.estimate, q_value, limits, across=ratio.apart)
        rows.append(replace(ratio, q_value=q_value, verdict=word, open=opened))
    return tuple(rows)


def place_of(record: Record, device: str) -> Place:
    """``device``: its label."""
    case = record.job.case
    return Place(suite_of(case.suite), case.mode.value, record.job.dtype, device)


def averages(ratios: Iterable[Ratio]) -> tuple[Average, ...]:
    """Of the ratios that count, by family, place and sides."""
    groups: dict[tuple[object, ...], list[Ratio]] = {}
    for ratio in ratios:
        if not ratio.record.job.case.point:  # a model's points are not several models
            key = (ratio.family, ratio.quantity, ratio.place, ratio.first, ratio.second)
            groups.setdefault(key, []).append(ratio)
    return tuple(
        Average(
            some[0], len(some), geomean([r.estimate for r in some if r.counts and r.estimate is not None])
        )
        for some in groups.values()
    )


# -- over eager -----------------------------------------------------------------------------------------


def over_eager(records: Sequence[Record]) -> list[dict[str, Ratio]]:
    """Of each record, the ratios over its eager by name: ``step``, ``prefill``, ``decode``, ``system``,
    ``allocator`` and (over itself) ``plain``, as far as it was timed.

    The family of the steps: the records that passed, with the A/A control. The promise is about what counts.
    """
    steps = estimates_of(records)
    systems = estimates_of([replace(record, samples=record.system_samples) for record in records])
    each: list[dict[str, Ratio]] = []
    for record, device, step, system in zip(records, device_labels(records), steps, systems, strict=True):
        known = Ratio(
            family=OVER_EAGER,
            quantity=STEP,
            place=place_of(record, device),
            record=record,
            first=Side(compiler_label(record)),
            second=Side(EAGER),
            estimate=step,
            apart=is_eager_of(record),  # eager of another process
            counts=record.status.passed,
        )
        malloc = {SYSTEM: system, ALLOCATOR: difference(step, system)}
        rows = {
            "step": known,
            **{family: replace(known, family=family, estimate=e) for family, e in malloc.items()},
            **{part: replace(known, quantity=part, estimate=e) for part, e in generation_of(record).items()},
        }
        each.append({name: row for name, row in rows.items() if row.estimate is not None})
    judged_steps = iter(judged([rows["step"] for rows in each if "step" in rows], passed=True))
    each = [rows | {"step": next(judged_steps)} if "step" in rows else rows for rows in each]
    return [
        rows | plain for rows, plain in zip(each, _over_plain([r.get("step") for r in each]), strict=True)
    ]


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


def generation_of(record: Record) -> Mapping[str, Estimate]:
    """Prefill and decode of text generation; without those whose samples cannot be used.

    Prefill ends with the first new token, decode is the rest of the step: it gives new tokens - 1 for each
    sequence. A prefill as long as its whole step leaves no decode.
    """
    samples, new_tokens = record.samples, record.job.case.new_tokens
    if samples is None or new_tokens is None:
        return {}
    baseline, candidate = samples.baseline_prefill_s, samples.candidate_prefill_s
    if len(baseline) != len(samples) or len(candidate) != len(samples):
        return {}
    rests = np.subtract(samples.baseline_s, baseline), np.subtract(samples.candidate_s, candidate)
    tau, processes = assumed_of(record), samples.rounds_by_process
    columns = {PREFILL: (baseline, candidate), **({DECODE: rests} if new_tokens > 1 else {})}
    parts = {name: judged_or_none(*both, processes, tau) for name, both in columns.items()}
    if parts[PREFILL] is None:
        return {}
    return {name: estimate for name, estimate in parts.items() if estimate is not None}


# -- over eager of the reference environment ------------------------------------------------------------


def over_reference(records: Sequence[Record]) -> tuple[Ratio, ...]:
    """One for each record, in plan order, of a job in several environments; eager before the compilers.

    Eager of the reference environment is included only as the A/A control. Skipped candidates are omitted.
    """
    measured = [r for r in records if r.job.environments and r.status is not Status.SKIP]
    measured = [r for r in measured if r.candidate in r.job.candidates]
    jobs = {key: place for place, key in enumerate(dict.fromkeys(r.job.key for r in measured))}
    measured.sort(key=lambda r: (jobs[r.job.key], split_candidate(r.job, r.candidate)[0] != EAGER))
    both = zip(measured, device_labels(measured), strict=True)
    return judged([_over_reference(*each) for each in both], passed=True)


def _over_reference(record: Record, device: str) -> Ratio:
    compiler, environment = split_candidate(record.job, record.candidate)
    estimate = None
    if (samples := record.samples) is not None:
        sides = samples.reference_s, samples.candidate_s
        estimate = judged_or_none(*sides, samples.rounds_by_process, ASSUMED_ACROSS)
    return Ratio(
        family=REFERENCE,
        quantity=STEP,
        place=place_of(record, device),
        record=record,
        first=Side(compiler, env=environment.name),
        second=Side(EAGER, env=record.job.environments[0].name),
        estimate=estimate,
        apart=True,
        counts=estimate is not None and record.status.passed and same_results(record) is not False,
    )


# -- candidate over candidate ----------------------------------------------------------------------------


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
    return judged([row for pair in both if (row := _pair(*pair, family=PAIRS)) is not None])


def _over_plain(steps: Sequence[Ratio | None]) -> Iterator[dict[str, Ratio]]:
    """Of each step of a candidate with settings, ``plain``: the ratio over itself without them."""
    named = {(step.record.job.key, step.record.candidate): step for step in steps if step is not None}
    for step in steps:
        other = step and named.get((step.record.job.key, plain_of(step.record.candidate)))
        row = _pair(step, other, family=OVER_PLAIN) if step and other and other is not step else None
        yield {"plain": row} if row else {}


def _pair(first: Ratio, second: Ratio, *, family: str) -> Ratio | None:
    """From the rounds that timed both: the second's time / the first's.

    None with fewer than ``FEWEST`` shared rounds, and for times that cannot be used.
    """
    own, other = first.record, second.record
    if own.samples is None or other.samples is None:
        return None
    apart = own.env != other.env
    before, after = (rounds_of(side, apart=apart) for side in (other.samples, own.samples))
    shared, by_process = timed_in_both(before, after)
    if len(shared) < FEWEST:
        return None
    baseline_s, candidate_s = ([side[key] for key in shared] for side in (before, after))
    tau = ASSUMED_ACROSS if apart else math.hypot(assumed_of(own), assumed_of(other))
    estimate = judged_or_none(baseline_s, candidate_s, by_process, tau)
    if estimate is None:
        return None
    return Ratio(
        family=family,
        quantity=STEP,
        place=first.place,
        record=own,
        other=other,
        first=first.first,
        second=second.first,
        estimate=estimate,
        apart=apart,
    )


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
