"""What statistics make of a run in several environments: each against eager of the reference environment.

A compiler's speedup over its own environment's eager hides that this eager may be slower
than the reference's. Pairs are samples of the same round of all environments.
"""

from __future__ import annotations

from collections.abc import Sequence

from harness.schema import Record, Status, of_environment
from runner.comparison import AcrossEnvironments, EnvironmentAverage
from runner.environments.plan import EAGER, split_candidate
from runner.statistics import PairedEstimate, estimated, false_discovery, geometric_mean, verdict


def across_environments(records: Sequence[Record]) -> tuple[AcrossEnvironments, ...]:
    """One for each record of a job in several environments: job by job, eager before the compilers.

    The reference's own eager is there only as the A/A control. Skipped candidates are left out.
    """
    mine = [r for r in records if r.job.environments and r.status is not Status.SKIP]
    mine = [r for r in mine if r.candidate in r.job.candidates]
    jobs = {key: place for place, key in enumerate(dict.fromkeys(r.job.key for r in mine))}
    mine.sort(key=lambda record: (jobs[record.job.key], *_place(record)))
    estimates = [_estimate(record) for record in mine]
    q_values = false_discovery([e.p_value if e is not None else None for e in estimates])
    return tuple(_one(*found) for found in zip(mine, estimates, q_values, strict=True))


def averages_across(across: Sequence[AcrossEnvironments]) -> tuple[EnvironmentAverage, ...]:
    """Geometric means over models, only of speedups that count; ``total`` counts every record."""
    groups: dict[tuple[str, ...], list[AcrossEnvironments]] = {}
    for one in across:
        case, job = one.record.job.case, one.record.job
        key = (case.suite, case.mode.value, job.device, job.dtype, one.environment, one.compiler)
        groups.setdefault(key, []).append(one)
    return tuple(_average(key, members) for key, members in groups.items())


def _place(record: Record) -> tuple[bool, int]:
    compiler, _ = split_candidate(record.job, record.candidate)
    return compiler != EAGER, record.job.candidates.index(record.candidate)


def _estimate(record: Record) -> PairedEstimate | None:
    samples = record.samples
    if samples is None:
        return None
    return estimated(samples.reference_s, samples.candidate_s, samples.rounds_by_process)


def _one(record: Record, estimate: PairedEstimate | None, q_value: float | None) -> AcrossEnvironments:
    compiler, environment = split_candidate(record.job, record.candidate)
    protocol = record.job.protocol
    agreement = record.env_parity
    same = None if agreement is None else not agreement.failed
    return AcrossEnvironments(
        record=record,
        environment=environment.name,
        reference=record.job.environments[0].name,
        compiler=compiler,
        n=estimate.n if estimate else 0,
        reference_ms=estimate.baseline_median_s * 1e3 if estimate else None,
        ms=estimate.candidate_median_s * 1e3 if estimate else None,
        speedup=estimate.speedup if estimate else None,
        ci_low=estimate.ci_low if estimate else None,
        ci_high=estimate.ci_high if estimate else None,
        p_value=estimate.p_value if estimate else None,
        q_value=q_value,
        verdict=verdict(estimate, q_value, noise_threshold=protocol.noise_threshold, alpha=protocol.alpha),
        same_results=same,
        counts=estimate is not None and record.status.passed and same is not False,
    )


def _average(key: tuple[str, ...], members: Sequence[AcrossEnvironments]) -> EnvironmentAverage:
    suite, mode, device, dtype, environment, compiler = key
    speedups = [one.speedup for one in members if one.counts and one.speedup is not None]
    mean, low, high = geometric_mean(speedups) if speedups else (None, None, None)
    record = members[0].record
    torch = next(one.torch for one in record.job.environments if one.name == environment)
    return EnvironmentAverage(
        environment=environment,
        versions=f"torch {torch}",
        compiler=compiler,
        suite=suite,
        mode=mode,
        device=device,
        dtype=dtype,
        total=len(members),
        averaged=len(speedups),
        geomean_speedup=mean,
        geomean_low=low,
        geomean_high=high,
    )


def is_eager_of(record: Record) -> bool:
    """Whether the candidate is an environment's eager, held against the reference's: nothing is compiled."""
    return bool(record.env) and record.candidate == of_environment(EAGER, record.env)
