"""Everything that is said about speed is one type: two sides, and how many times as fast the first is.

The ratios of a family are judged together: q is Benjamini and Hochberg's over the family, and families do
not mix. Eager of an environment may be slower than eager of the reference environment, which a speedup over
the environment's own eager hides: the family ``REFERENCE`` shows it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from harness.loading.own_model import suite_of
from harness.schema import Record, Status
from runner.analysis.estimate import Estimate, Limits
from runner.analysis.results import (
    ALLOCATOR,
    DECODE,
    OVER_EAGER,
    PREFILL,
    REFERENCE,
    STEP,
    SYSTEM,
    Average,
    Place,
    Ratio,
    Side,
    same_results,
)
from runner.analysis.statistics import false_discovery, geomean
from runner.analysis.verdicts.between import ASSUMED_ACROSS
from runner.analysis.verdicts.decision import Between, difference, judged_or_none
from runner.analysis.verdicts.family import assumed_of, estimates_of, is_eager_of
from runner.analysis.verdicts.reasons import judgment
from runner.labels import compiler_label, device_labels
from runner.plan.environments.spec import EAGER, split_candidate


def judged(ratios: Sequence[Ratio], *, tested: Callable[[Ratio], bool] = lambda _: True) -> tuple[Ratio, ...]:
    """The ratios of one family with q, verdict and reason. ``tested``: whether a ratio is in the family."""
    q_values = false_discovery([r.estimate.p_value if r.estimate and tested(r) else None for r in ratios])
    return tuple(_judged(ratio, q_value) for ratio, q_value in zip(ratios, q_values, strict=True))


def _judged(ratio: Ratio, q_value: float | None) -> Ratio:
    limits = Limits.of(*(side.job.protocol for side in (ratio.record, ratio.other) if side))
    word, opened = judgment(ratio.estimate, q_value, limits, across=ratio.apart)
    return replace(ratio, q_value=q_value, verdict=word, open=opened)


def passed(ratio: Ratio) -> bool:
    return ratio.record.status.passed


def place_of(record: Record, device: str) -> Place:
    """``device``: its label."""
    case = record.job.case
    return Place(suite_of(case.suite), case.mode.value, record.job.dtype, device)


def averages(ratios: Iterable[Ratio]) -> tuple[Average, ...]:
    """Of the ratios that count, by family, place and sides."""
    groups: dict[tuple[object, ...], list[Ratio]] = {}
    for ratio in ratios:
        if not ratio.is_point:
            key = (ratio.family, ratio.quantity, ratio.place, ratio.first, ratio.second)
            groups.setdefault(key, []).append(ratio)
    return tuple(
        Average(
            family=first.family,
            place=first.place,
            first=first.first,
            second=first.second,
            total=len(members),
            mean=geomean([r.estimate for r in members if r.counts and r.estimate is not None]),
            record=first.record,
        )
        for members in groups.values()
        for first in members[:1]
    )


# -- over eager -----------------------------------------------------------------------------------------


def over_eager(records: Sequence[Record]) -> list[dict[str, Ratio]]:
    """Of each record, the ratios over its eager by name: ``step``, ``prefill``, ``decode``, ``system`` and
    ``allocator``, as far as it was timed.

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
    judged_steps = iter(judged([rows["step"] for rows in each if "step" in rows], tested=passed))
    return [rows | {"step": next(judged_steps)} if "step" in rows else rows for rows in each]


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
    between = Between(assumed_sd=assumed_of(record))
    columns = {PREFILL: (baseline, candidate), **({DECODE: rests} if new_tokens > 1 else {})}
    parts = {
        name: judged_or_none(*both, samples.rounds_by_process, between) for name, both in columns.items()
    }
    if parts[PREFILL] is None:
        return {}
    return {name: estimate for name, estimate in parts.items() if estimate is not None}


# -- over eager of the reference environment ------------------------------------------------------------


def over_reference(records: Sequence[Record]) -> tuple[Ratio, ...]:
    """One for each record of a job in several environments: job by job, eager before the compilers.

    Eager of the reference environment is included only as the A/A control. Skipped candidates are omitted.
    """
    measured = [r for r in records if r.job.environments and r.status is not Status.SKIP]
    measured = [r for r in measured if r.candidate in r.job.candidates]
    jobs = {key: place for place, key in enumerate(dict.fromkeys(r.job.key for r in measured))}

    def order(record: Record) -> tuple[int, bool, int]:
        compiler, _ = split_candidate(record.job, record.candidate)
        return jobs[record.job.key], compiler != EAGER, record.job.candidates.index(record.candidate)

    measured.sort(key=order)
    both = zip(measured, device_labels(measured), strict=True)
    return judged([_over_reference(*each) for each in both], tested=passed)


def _over_reference(record: Record, device: str) -> Ratio:
    compiler, environment = split_candidate(record.job, record.candidate)
    samples, estimate = record.samples, None
    if samples is not None:
        between = Between(assumed_sd=ASSUMED_ACROSS)
        estimate = judged_or_none(
            samples.reference_s, samples.candidate_s, samples.rounds_by_process, between
        )
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
