"""From records to what can be said about them: Record -> Comparison -> Summary."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from statistics import fmean

from harness.schema import Record, Status
from runner.caveats import caveats
from runner.comparison import Comparison, GroupSummary, Summary, Verdict
from runner.environments.compare import across_environments, averages_across
from runner.findings import findings
from runner.generation import generation_of
from runner.labels import compiler_label, device_labels, merged_facts
from runner.noise import noise_of, number
from runner.statistics import PairedEstimate, estimated, false_discovery, geometric_mean, verdict
from runner.work import Peaks, best_peaks, work_of


def summarise(records: Sequence[Record]) -> Summary:
    """Everything the reports show of a run, in plan order: job by job, candidates as the job lists them."""
    comparisons = compare(_in_plan_order(records))
    across = across_environments(records)
    return Summary(
        comparisons=comparisons,
        groups=_groups(comparisons),
        environment=merged_facts(records),
        warnings=findings(comparisons),
        caveats=caveats(comparisons),
        across=across,
        across_averages=averages_across(across),
    )


def compare(records: Sequence[Record]) -> tuple[Comparison, ...]:
    """One comparison a record, in the order given.

    The false discovery rate is controlled over all records given, the A/A
    control among them. A record without samples has no timing numbers.
    """
    estimates = [_estimate(record) for record in records]
    q_values = false_discovery([e.p_value if e is not None else None for e in estimates])
    devices = device_labels(records)
    peaks = best_peaks(records, devices)
    each = zip(records, devices, estimates, q_values, peaks, strict=True)
    return tuple(_comparison(*one) for one in each)


def _estimate(record: Record) -> PairedEstimate | None:
    """None without samples, and for samples that are none (a finding then says so)."""
    samples = record.samples
    if samples is None:
        return None
    return estimated(samples.baseline_s, samples.candidate_s, samples.rounds_by_process)


def _comparison(
    record: Record, device: str, estimate: PairedEstimate | None, q_value: float | None, peaks: Peaks
) -> Comparison:
    compilation_s = number(record, "compilation_latency_s")
    baseline_peak = number(record, "baseline_peak_memory_bytes")
    candidate_peak = number(record, "candidate_peak_memory_bytes")
    protocol = record.job.protocol
    return Comparison(
        record=record,
        compiler=compiler_label(record),
        device=device,
        n=estimate.n if estimate else 0,
        baseline_ms=estimate.baseline_median_s * 1e3 if estimate else None,
        candidate_ms=estimate.candidate_median_s * 1e3 if estimate else None,
        speedup=estimate.speedup if estimate else None,
        ci_low=estimate.ci_low if estimate else None,
        ci_high=estimate.ci_high if estimate else None,
        p_value=estimate.p_value if estimate else None,
        q_value=q_value,
        verdict=verdict(estimate, q_value, noise_threshold=protocol.noise_threshold, alpha=protocol.alpha),
        processes=estimate.processes if estimate else None,
        between_sd=estimate.between_sd if estimate else None,
        speedup_of_medians=estimate.speedup_of_medians if estimate else None,
        compilation_latency_s=compilation_s,
        baseline_peak_gb=_ratio(baseline_peak, 1e9),
        candidate_peak_gb=_ratio(candidate_peak, 1e9),
        memory_ratio=_ratio(baseline_peak, candidate_peak) if baseline_peak else None,
        break_even_steps=_break_even(compilation_s, estimate),
        work=work_of(record, estimate, peaks),
        noise=noise_of(record),
        generation=generation_of(record),
    )


def _ratio(part: float | None, whole: float | None) -> float | None:
    return part / whole if part is not None and whole else None


def _break_even(compilation_s: float | None, estimate: PairedEstimate | None) -> float | None:
    """Steps after which compiling has paid for itself. See ``Comparison``."""
    if compilation_s is None or estimate is None or estimate.ci_low is None or estimate.ci_high is None:
        return None
    if estimate.ci_high < 1:
        return math.inf
    if estimate.ci_low <= 1:
        return None
    return compilation_s / (estimate.baseline_median_s * (1 - 1 / estimate.speedup))


def _in_plan_order(records: Sequence[Record]) -> list[Record]:
    """Records arrive as they end, failures first; within a job the job's own order is clearer."""
    jobs = {key: place for place, key in enumerate(dict.fromkeys(r.job.key for r in records))}

    def place(record: Record) -> tuple[int, int]:
        candidates = record.job.candidates
        known = record.candidate in candidates
        return jobs[record.job.key], candidates.index(record.candidate) if known else len(candidates)

    return sorted(records, key=place)


GroupKey = tuple[str, str, str, str, str]


def _groups(comparisons: Iterable[Comparison]) -> tuple[GroupSummary, ...]:
    members: dict[GroupKey, list[Comparison]] = {}
    for comparison in comparisons:
        job = comparison.record.job
        key = (comparison.compiler, job.case.suite, job.case.mode.value, comparison.device, job.dtype)
        members.setdefault(key, []).append(comparison)
    run = {key: [c for c in group if c.record.status is not Status.SKIP] for key, group in members.items()}
    return tuple(_group(key, group) for key, group in run.items() if group)


def _group(key: GroupKey, members: Sequence[Comparison]) -> GroupSummary:
    compiler, suite, mode, device, dtype = key
    passed = [c for c in members if c.record.status.passed]
    speedups = _numbers(passed, lambda c: c.speedup)
    latencies = _numbers(passed, lambda c: c.compilation_latency_s)
    ratios = _numbers(passed, lambda c: c.memory_ratio)
    mean, low, high = geometric_mean(speedups) if speedups else (None, None, None)
    found = Counter(c.verdict for c in passed if c.verdict is not None)
    return GroupSummary(
        compiler=compiler,
        suite=suite,
        mode=mode,
        device=device,
        dtype=dtype,
        total=len(members),
        passed=len(passed),
        pass_share=len(passed) / len(members),
        averaged=len(speedups),
        geomean_speedup=mean,
        geomean_low=low,
        geomean_high=high,
        compilation_n=len(latencies),
        mean_compilation_latency_s=fmean(latencies) if latencies else None,
        memory_n=len(ratios),
        mean_memory_ratio=fmean(ratios) if ratios else None,
        verdicts={verdict.value: found[verdict] for verdict in Verdict},
    )


def _numbers(comparisons: Iterable[Comparison], number: Callable[[Comparison], float | None]) -> list[float]:
    return [value for c in comparisons if (value := number(c)) is not None]
