"""Computes the statistics of records: Record -> Result -> Summary."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import methodcaller
from statistics import fmean, median

import numpy as np

from harness.declared import CANDIDATE, EAGER, GIGA, Seen, finite, ratio
from harness.metrics import declared
from harness.schema import Record, Scalar
from runner.analysis.caveats import caveats
from runner.analysis.columns import columns
from runner.analysis.findings import findings
from runner.analysis.ratios import (
    averages,
    candidate_pairs,
    is_compiled,
    over_eager,
    over_reference,
    place_of,
)
from runner.analysis.results import (
    ALLOCATOR,
    PAIRS,
    REFERENCE,
    STEADINESS,
    SYSTEM,
    GroupSummary,
    Mean,
    MeanOf,
    PairedEstimate,
    Place,
    Ratio,
    Result,
    Summary,
)
from runner.analysis.start_up import start_forms
from runner.analysis.statistics import coefficient_of_variation, geomean, lag_1_autocorrelation, wilson
from runner.analysis.sweep import curves
from runner.analysis.verdicts import Verdict
from runner.analysis.verdicts.compiling import (
    LATENCY,
    break_even,
    center,
    compilations_of,
    compile_pairs,
    compile_starts,
    first_step_pairs,
    paying,
)
from runner.analysis.verdicts.trajectory import numbers
from runner.names import compiler_label, device_labels, merged_facts

Peaks = Mapping[str, float]
"""The highest rates measured on a device. Each job measures them; a disturbed job measures less."""


def summarize(records: Sequence[Record]) -> Summary:
    """Everything that reports show of a run. Jobs are in plan order, candidates in the order of their job."""
    ordered = _in_plan_order(records)
    comparisons = compare(ordered)
    ratios = (
        *(ratio for comparison in comparisons for ratio in comparison.own.values()),
        *candidate_pairs([step for comparison in comparisons if (step := comparison.step) is not None]),
        *over_reference(ordered),
        *compile_pairs(comparisons),
        *first_step_pairs(comparisons),
    )
    return Summary(
        comparisons=comparisons,
        groups=_groups(comparisons),
        environment=merged_facts(records),
        warnings=findings(comparisons),
        caveats=caveats(comparisons),
        ratios=ratios,
        averages=averages(ratio for ratio in ratios if ratio.family in (PAIRS, REFERENCE)),
        compile_starts=compile_starts(comparisons),
        start_forms=start_forms(c for c in comparisons if not c.record.job.extras.shapes),
        shape_forms=start_forms(c for c in comparisons if c.record.job.extras.shapes),
        curves=curves(comparisons),
    )


def compare(records: Sequence[Record]) -> tuple[Result, ...]:
    """One comparison for each record, in the given order. A record without samples has no timing numbers."""
    devices = device_labels(records)
    each = zip(records, devices, over_eager(records), _peaks_of(records, devices), strict=True)
    return tuple(_comparison(*known) for known in each)


def _comparison(record: Record, device: str, own: Mapping[str, Ratio], peaks: Peaks) -> Result:
    step = own["step"].estimate if "step" in own else None
    estimate = step if isinstance(step, PairedEstimate) else None
    derived = {**_derived_of(record, estimate, peaks), **_steadiness(record, estimate), **numbers(record)}
    metrics, times = record.metrics, compilations_of(record)
    if times:
        derived[LATENCY] = center(times)
    return Result(
        record=record,
        compiler=compiler_label(record),
        place=place_of(record, device),
        own=own,
        compilations_s=tuple(times),
        compile_s=center(times),
        baseline_peak_gb=ratio(finite(metrics.get("baseline_peak_memory_bytes")), GIGA),
        candidate_peak_gb=ratio(finite(metrics.get("candidate_peak_memory_bytes")), GIGA),
        memory_ratio=finite(derived["memory_ratio"]),
        break_even=break_even(times, estimate) if is_compiled(record) else None,
        derived=derived,
    )


def _in_plan_order(records: Sequence[Record]) -> list[Record]:
    """Candidates in the order of their job, jobs in that of their first record.

    The record file has them in the order in which they ended; ``read_run`` has jobs in the plan's order.
    """
    jobs = {key: place for place, key in enumerate(dict.fromkeys(r.job.key for r in records))}
    return sorted(
        records, key=lambda r: (jobs[r.job.key], [*r.job.candidates, r.candidate].index(r.candidate))
    )


def _peaks_of(records: Sequence[Record], devices: Sequence[str]) -> tuple[Peaks, ...]:
    """For each record, the highest rates of the records with its device, precision and thread count."""
    names = [metric.name for metric in declared().metrics if metric.limit]
    keys = [(device, r.job.dtype, r.job.protocol.threads) for r, device in zip(records, devices, strict=True)]
    peaks: dict[tuple[str, str, int | None], dict[str, float]] = {key: {} for key in keys}
    for key, record in zip(keys, records, strict=True):
        for name in names:
            if (value := finite(record.metrics.get(name))) is not None:
                peaks[key][name] = max(value, peaks[key].get(name, value))
    return tuple(peaks[key] for key in keys)


def _derived_of(record: Record, estimate: PairedEstimate | None, peaks: Peaks) -> dict[str, Scalar]:
    """All metrics derived from the record's metrics."""
    times = estimate and {EAGER: estimate.baseline_median_s, CANDIDATE: estimate.candidate_median_s}
    # peaks are measured at the candidate's precision, so eager in another precision has no share of them
    alike = record.job.baseline_dtype in (None, record.job.dtype)
    seen = Seen(
        numbers=record.metrics,
        environment=record.environment,
        best=peaks,
        step_s=times or {},
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


def _groups(comparisons: Iterable[Result]) -> tuple[GroupSummary, ...]:
    members: dict[tuple[str, Place], list[Result]] = {}
    for c in comparisons:
        if c.record.status.counted and not c.record.job.case.point:  # a model's points are not several models
            members.setdefault((c.compiler, c.place), []).append(c)
    common = _common(members)
    return tuple(_group(*key, group, common.get(key[1], frozenset())) for key, group in members.items())


def _common(run: Mapping[tuple[str, Place], Sequence[Result]]) -> dict[Place, frozenset[str]]:
    """Of each place: the jobs that all of its compilers passed with a speedup.

    Eager counts for nothing here, and neither does a compiler that passed nowhere.
    """
    shared: dict[Place, frozenset[str]] = {}
    for (_, place), members in run.items():
        timed = (c for c in members if c.record.status.passed and c.speedup is not None)
        jobs = frozenset(c.record.job.key for c in timed)
        if jobs and is_compiled(members[0].record):
            shared[place] = shared.get(place, jobs) & jobs
    return shared


def _group(compiler: str, place: Place, members: Sequence[Result], common: frozenset[str]) -> GroupSummary:
    passed = [c for c in members if c.record.status.passed]
    pass_low, pass_high = wilson(len(passed), len(members))
    counts = Counter(c.verdict for c in passed)
    means = {m.name: _mean(passed, methodcaller("number", m.name)) for m in declared().averages()}

    def mean(name: str, among: Iterable[Result] = passed) -> Mean:
        own = (c.own[name].estimate for c in among if name in c.own)
        return geomean([estimate for estimate in own if estimate is not None])

    return GroupSummary(
        *(compiler, place),
        total=len(members),
        passed=len(passed),
        pass_share=len(passed) / len(members),
        pass_low=pass_low,
        pass_high=pass_high,
        mean=mean("step"),
        common=mean("step", [c for c in passed if c.record.job.key in common]),
        system=mean(SYSTEM),
        allocator=mean(ALLOCATOR),
        break_even=paying([c.break_even for c in passed if c.break_even is not None]),
        means={"judged_finely": _mean(passed, columns()["judged_finely"].value), **means},
        verdicts={verdict.value: counts[verdict] for verdict in Verdict},
        checked=any(c.record.job.protocol.accuracy for c in members),
        speedups=tuple(c.speedup for c in passed if c.speedup is not None),
    )


def _mean(comparisons: Iterable[Result], number: Callable[[Result], Scalar]) -> MeanOf:
    values = [value for c in comparisons if (value := finite(number(c))) is not None]
    return MeanOf(len(values), fmean(values) if values else None)
