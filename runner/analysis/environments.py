"""Statistics of a run in several environments, relative to eager of the reference environment.

Eager of an environment may be slower than eager of the reference. A compiler's speedup over
eager of its own environment hides this. Each pair is from one round.
"""

from __future__ import annotations

from collections.abc import Sequence

from harness.loading.own_model import suite_of
from harness.schema import Record, Status, of_environment
from runner.analysis.comparison import AcrossEnvironments, EnvironmentAverage
from runner.analysis.estimate import Limits, PairedEstimate
from runner.analysis.statistics import false_discovery, geomean
from runner.analysis.verdicts.between import ASSUMED_ACROSS
from runner.analysis.verdicts.decision import Between, judged_or_none
from runner.analysis.verdicts.reasons import judgment
from runner.labels import device_labels
from runner.plan.environments.plan import EAGER, split_candidate

Key = tuple[str, str, str, str, str, str]
"""Suite, mode, device, precision, environment, compiler."""


def across_environments(records: Sequence[Record]) -> tuple[AcrossEnvironments, ...]:
    """One for each record of a job in several environments: job by job, eager before the compilers.

    Eager of the reference environment is included only as the A/A control. Skipped candidates are omitted.
    """
    measured = [r for r in records if r.job.environments and r.status is not Status.SKIP]
    measured = [r for r in measured if r.candidate in r.job.candidates]
    jobs = {key: place for place, key in enumerate(dict.fromkeys(r.job.key for r in measured))}
    measured.sort(key=lambda record: (jobs[record.job.key], *_place(record)))
    estimates = [_estimate(record) for record in measured]
    family = zip(measured, estimates, strict=True)
    q_values = false_discovery([e.p_value if e and r.status.passed else None for r, e in family])
    return tuple(_across(*parts) for parts in zip(measured, estimates, q_values, strict=True))


def averages_across(across: Sequence[AcrossEnvironments]) -> tuple[EnvironmentAverage, ...]:
    """Geometric means over the models whose speedups count. ``total`` counts every record."""
    groups: dict[Key, list[AcrossEnvironments]] = {}
    for c, device in zip(across, device_labels([c.record for c in across]), strict=True):
        case, job = c.record.job.case, c.record.job
        if case.point:
            continue  # a model's points are not several models
        key = (suite_of(case.suite), case.mode.value, device, job.dtype, c.environment, c.compiler)
        groups.setdefault(key, []).append(c)
    return tuple(_average(key, members) for key, members in groups.items())


def _place(record: Record) -> tuple[bool, int]:
    compiler, _ = split_candidate(record.job, record.candidate)
    return compiler != EAGER, record.job.candidates.index(record.candidate)


def _estimate(record: Record) -> PairedEstimate | None:
    samples = record.samples
    if samples is None:
        return None
    between = Between(assumed_sd=ASSUMED_ACROSS)
    return judged_or_none(samples.reference_s, samples.candidate_s, samples.rounds_by_process, between)


def _across(record: Record, estimate: PairedEstimate | None, q_value: float | None) -> AcrossEnvironments:
    compiler, environment = split_candidate(record.job, record.candidate)
    parity = record.env_parity
    word, opened = judgment(estimate, q_value, Limits.of(record.job.protocol), across=True)
    same = None if parity is None else not parity.failed
    return AcrossEnvironments(
        record=record,
        environment=environment.name,
        reference=record.job.environments[0].name,
        compiler=compiler,
        estimate=estimate,
        q_value=q_value,
        verdict=word,
        open=opened,
        same_results=same,
        counts=estimate is not None and record.status.passed and same is not False,
    )


def _average(key: Key, members: Sequence[AcrossEnvironments]) -> EnvironmentAverage:
    torch = next(env.torch for env in members[0].record.job.environments if env.name == key[4])
    return EnvironmentAverage(
        *key,
        versions=f"torch {torch}",
        total=len(members),
        mean=geomean([c.estimate for c in members if c.counts and c.estimate is not None]),
    )


def is_compiled(record: Record) -> bool:
    """Whether the candidate is no eager: neither the control, nor in another precision or environment."""
    return record.candidate != EAGER and not is_eager_of(record)


def is_eager_of(record: Record) -> bool:
    """Whether the candidate is eager of an environment, so that nothing is compiled."""
    return bool(record.env) and record.candidate == of_environment(EAGER, record.env)
