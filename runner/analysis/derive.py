"""Computes the statistics of records: Record -> Comparison -> Summary."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from operator import methodcaller
from statistics import fmean, median

import numpy as np

from harness.declared import CANDIDATE, EAGER, GIGA, Seen, finite, ratio
from harness.loading.own_model import suite_of
from harness.metrics import declared
from harness.schema import Record, Scalar
from runner.analysis.caveats import caveats
from runner.analysis.columns import columns
from runner.analysis.comparison import STEADINESS, Comparison, GroupSummary, Mean, Summary
from runner.analysis.environments import across_environments, averages_across, is_compiled, is_eager_of
from runner.analysis.estimate import Limits, PairedEstimate, Verdict
from runner.analysis.findings import findings
from runner.analysis.start_up.forms import start_forms
from runner.analysis.statistics import (
    coefficient_of_variation,
    false_discovery,
    geomean,
    lag_1_autocorrelation,
    wilson,
)
from runner.analysis.sweep.curves import curves
from runner.analysis.verdicts.compiling import (
    LATENCY,
    break_even,
    center,
    compilations_of,
    compile_pairs,
    compile_starts,
    paying,
)
from runner.analysis.verdicts.decision import difference
from runner.analysis.verdicts.family import estimates_of
from runner.analysis.verdicts.generation import generation_of
from runner.analysis.verdicts.pairs import candidate_pairs, compiler_ratios, over_plain
from runner.analysis.verdicts.reasons import judgment
from runner.labels import compiler_label, device_labels, merged_facts

Peaks = Mapping[str, float]
"""The highest rates measured on a device. Each job measures them; a disturbed job measures less."""


def summarize(records: Sequence[Record]) -> Summary:
    """Everything that reports show of a run. Jobs are in plan order, candidates in the order of their job."""
    comparisons = compare(_in_plan_order(records))
    across = across_environments(records)
    pairs = candidate_pairs(comparisons)
    return Summary(
        comparisons=comparisons,
        groups=_groups(comparisons),
        environment=merged_facts(records),
        warnings=findings(comparisons),
        caveats=caveats(comparisons),
        across=across,
        across_averages=averages_across(across),
        pairs=pairs,
        ratios=compiler_ratios(pairs),
        compile_starts=compile_starts(comparisons),
        compile_pairs=compile_pairs(comparisons),
        start_forms=start_forms(c for c in comparisons if not c.record.job.extras.shapes),
        shape_forms=start_forms(c for c in comparisons if c.record.job.extras.shapes),
        curves=curves(comparisons),
    )


def compare(records: Sequence[Record]) -> tuple[Comparison, ...]:
    """One comparison for each record, in the given order.

    The false discovery rate is controlled over the records that passed, including the
    A/A control: the promise is about what counts. A record without samples has no timing numbers.
    """
    estimates = estimates_of(records)
    family = zip(records, estimates, strict=True)
    q_values = false_discovery([e.p_value if e and r.status.passed else None for r, e in family])
    devices = device_labels(records)
    peaks = _peaks_of(records, devices)
    plain, system = over_plain(records), estimates_of([replace(r, samples=r.system_samples) for r in records])
    each = zip(records, devices, estimates, q_values, peaks, plain, system, strict=True)
    return tuple(_comparison(*parts) for parts in each)


def _comparison(
    record: Record,
    device: str,
    estimate: PairedEstimate | None,
    q_value: float | None,
    peaks: Peaks,
    plain: PairedEstimate | None,
    system: PairedEstimate | None,
) -> Comparison:
    derived = {**_derived_of(record, estimate, peaks), **_steadiness(record, estimate)}
    numbers, times = record.metrics, compilations_of(record)
    if times:
        derived[LATENCY] = center(times)
    across = is_eager_of(record)  # eager of another process
    limits = Limits.of(record.job.protocol)
    word, opened = judgment(estimate, q_value, limits, across=across)
    return Comparison(
        record=record,
        compiler=compiler_label(record),
        device=device,
        estimate=estimate,
        q_value=q_value,
        verdict=word,
        open=opened,
        compilations_s=tuple(times),
        compilation_latency_s=center(times),
        baseline_peak_gb=ratio(finite(numbers.get("baseline_peak_memory_bytes")), GIGA),
        candidate_peak_gb=ratio(finite(numbers.get("candidate_peak_memory_bytes")), GIGA),
        memory_ratio=finite(derived["memory_ratio"]),
        break_even=break_even(times, estimate) if is_compiled(record) else None,
        derived=derived,
        over_plain=plain,
        system=system,
        allocator=difference(estimate, system),
        generation=generation_of(record),
    )


def _in_plan_order(records: Sequence[Record]) -> list[Record]:
    """Candidates in the order of their job, jobs in that of their first record.

    The record file has them in the order in which they ended; ``read_run`` has jobs in the plan's order.
    """
    jobs = {key: place for place, key in enumerate(dict.fromkeys(r.job.key for r in records))}

    def place(record: Record) -> tuple[int, int]:
        candidates = record.job.candidates
        is_listed = record.candidate in candidates
        return jobs[record.job.key], candidates.index(record.candidate) if is_listed else len(candidates)

    return sorted(records, key=place)


def _peaks_of(records: Sequence[Record], devices: Sequence[str]) -> tuple[Peaks, ...]:
    """For each record, the highest rates of the records with its device, precision and thread count."""
    names = [metric.name for metric in declared().metrics if metric.limit]
    keys = [
        (device, record.job.dtype, record.job.protocol.threads)
        for record, device in zip(records, devices, strict=True)
    ]
    peaks: dict[tuple[str, str, int | None], dict[str, float]] = {}
    for key, record in zip(keys, records, strict=True):
        best = peaks.setdefault(key, {})
        for name in names:
            value = finite(record.metrics.get(name))
            if value is not None:
                best[name] = max(value, best.get(name, value))
    return tuple(peaks[key] for key in keys)


def _derived_of(record: Record, estimate: PairedEstimate | None, peaks: Peaks) -> dict[str, Scalar]:
    """All metrics derived from the record's metrics."""
    steps = (
        {}
        if estimate is None
        else {EAGER: estimate.baseline_median_s, CANDIDATE: estimate.candidate_median_s}
    )
    # peaks are measured at the candidate's precision, so eager in another precision has no share of them
    alike = record.job.baseline_dtype in (None, record.job.dtype)
    seen = Seen(
        numbers=record.metrics,
        environment=record.environment,
        best=peaks,
        step_s=steps,
        comparable={EAGER: alike, CANDIDATE: True},
    )
    return declared().derived(seen)


def _steadiness(record: Record, estimate: PairedEstimate | None) -> dict[str, Scalar]:
    """How steady the timed rounds were; empty without an estimate: no samples can be used."""
    samples = record.samples
    if samples is None or estimate is None:
        return {}
    baseline_s, candidate_s = np.array(samples.baseline_s), np.array(samples.candidate_s)
    faults = (samples.baseline_minor_faults, samples.candidate_minor_faults)
    numbers = (
        coefficient_of_variation(baseline_s),
        coefficient_of_variation(candidate_s),
        lag_1_autocorrelation(np.log(baseline_s / candidate_s)),
        *(median(values) if values else None for values in faults),
    )
    return dict(zip(STEADINESS, numbers, strict=True))


GroupKey = tuple[str, str, str, str, str]


def _groups(comparisons: Iterable[Comparison]) -> tuple[GroupSummary, ...]:
    members: dict[GroupKey, list[Comparison]] = {}
    for comparison in comparisons:
        job, case = comparison.record.job, comparison.record.job.case
        if case.point:
            continue  # a model's points are not several models
        key = (comparison.compiler, suite_of(case.suite), case.mode.value, comparison.device, job.dtype)
        members.setdefault(key, []).append(comparison)
    run = {key: [c for c in group if c.record.status.counted] for key, group in members.items()}
    common = _common(run)
    return tuple(_group(key, group, common.get(key[1:], frozenset())) for key, group in run.items() if group)


def _common(run: Mapping[GroupKey, Sequence[Comparison]]) -> dict[tuple[str, ...], frozenset[str]]:
    """Of each suite, mode, device and dtype: the jobs that all of its compilers passed with a speedup.

    Eager counts for nothing here, and neither does a compiler that passed nowhere.
    """
    shared: dict[tuple[str, ...], frozenset[str]] = {}
    for (_, *where), members in run.items():
        timed = (c for c in members if c.record.status.passed and c.speedup is not None)
        jobs = frozenset(c.record.job.key for c in timed)
        if jobs and is_compiled(members[0].record):
            shared[tuple(where)] = shared.get(tuple(where), jobs) & jobs
    return shared


def _group(key: GroupKey, members: Sequence[Comparison], common: frozenset[str]) -> GroupSummary:
    passed = [c for c in members if c.record.status.passed]
    speedups = [(c.record.job.key, c.estimate) for c in passed if c.estimate is not None]
    pass_low, pass_high = wilson(len(passed), len(members))
    counts = Counter(c.verdict for c in passed if c.verdict is not None)
    return GroupSummary(
        *key,
        total=len(members),
        passed=len(passed),
        pass_share=len(passed) / len(members),
        pass_low=pass_low,
        pass_high=pass_high,
        mean=geomean([estimate for _, estimate in speedups]),
        common=geomean([estimate for job, estimate in speedups if job in common]),
        system=geomean([c.system for c in passed if c.system is not None]),
        allocator=geomean([c.allocator for c in passed if c.allocator is not None]),
        judged=_mean(passed, columns()["judged_finely"].value),
        break_even=paying([c.break_even for c in passed if c.break_even is not None]),
        means={m.name: _mean(passed, methodcaller("number", m.name)) for m in declared().averages()},
        verdicts={verdict.value: counts[verdict] for verdict in Verdict},
        checked=any(c.record.job.protocol.accuracy for c in members),
    )


def _mean(comparisons: Iterable[Comparison], number: Callable[[Comparison], Scalar]) -> Mean:
    values = [value for c in comparisons if (value := finite(number(c))) is not None]
    return Mean(n=len(values), value=fmean(values) if values else None)
