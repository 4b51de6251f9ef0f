"""The one decision: paired samples -> estimate with everything that an interval must hold -> verdict.

Stopping, tables, reports, gates and comparisons of runs use these functions, so a verdict has one meaning.

One process: the rounds' own interval, widened for dependence, and the assumed variation between processes
(tau) are added in quadrature, in interval, p and verdict. Several processes: one Hodges-Lehmann estimate for
each, Student's t with a variance moderated by all models of the run (``between.moderated``).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from scipy import special

from runner.analysis.results import Estimate, Interval, OfRounds, PairedEstimate
from runner.analysis.statistics import Floats, Numbers, Part, paired_speedup, student
from runner.analysis.verdicts import MOST_NAMED, Limits, Open, Reason, Verdict
from runner.analysis.verdicts.between import ASSUMED_DF, LEAST_ACROSS, moderated, pooled
from runner.analysis.verdicts.dependence import steadiness, widening

Z_95, Z_90 = (float(special.ndtri(share)) for share in (0.975, 0.95))
TAU_DF = 20  # the assumed tau is itself an estimate, from about ten models
T_95, T_90 = (float(special.stdtrit(TAU_DF, share)) for share in (0.975, 0.95))
STUDENT = ("log", "interval", "interval_90", "p_value", "error", "df")
HALF = 0.5  # of the noise threshold: rounds are added down to an interval of the rounds as narrow as that
OPEN = (Verdict.INCONCLUSIVE, Verdict.UNSTEADY)
UNSTEADY = f"a quieter machine, or --processes={LEAST_ACROSS} and more"
CLOSES = {
    Reason.TOO_FEW_ROUNDS: "6 rounds or more: fewer have no interval",
    Reason.SIDES: f"{LEAST_ACROSS} processes of each side (--processes={LEAST_ACROSS})",
    **dict.fromkeys((Reason.TREND, Reason.HALVES, Reason.REGIMES), UNSTEADY),
    Reason.FAMILY: "more rounds: the interval is clear, but q counts all comparisons of the run",
    Reason.RUNS: "more runs of the base",
}


def judged(
    baseline_s: Numbers,
    candidate_s: Numbers,
    rounds_by_process: Sequence[int] = (),
    assumed_sd: float = 0.0,
    pool: Part | None = None,
) -> PairedEstimate:
    """The estimate that verdicts are made from.

    ``rounds_by_process``: the number of rounds of each process, in the order of the columns; () for one.
    ``assumed_sd``: tau of one process. ``pool``: what all models of the run say about the variance of a
    process's log speedup; None: only the assumption is known. Raises ``ValueError`` as ``paired_speedup``
    does, and if the rounds do not add up to the length of the columns.
    """
    baseline, candidate = np.asarray(baseline_s, dtype=np.float64), np.asarray(candidate_s, dtype=np.float64)
    whole = paired_speedup(baseline, candidate)
    logs = np.log(baseline / candidate)
    if len(rounds_by_process) < 2:
        return _of_one(whole, logs, assumed_sd)
    if min(rounds_by_process) < 1 or sum(rounds_by_process) != whole.n:
        raise ValueError(f"{whole.n} rounds but {list(rounds_by_process)} by process")
    alone = each_process(baseline, candidate, rounds_by_process)
    pool = pool or pool_of([_spread(alone)], assumed_sd)
    return _of_several(whole, alone, np.split(logs, np.cumsum(rounds_by_process)[:-1]), pool)


def each_process(
    baseline_s: Numbers, candidate_s: Numbers, rounds_by_process: Sequence[int]
) -> list[PairedEstimate]:
    """The estimate of each process. Raises ``ValueError`` as ``paired_speedup`` does."""
    ends = np.cumsum(rounds_by_process)[:-1]
    columns = (np.split(np.asarray(column, dtype=np.float64), ends) for column in (baseline_s, candidate_s))
    return [paired_speedup(*sides) for sides in zip(*columns, strict=True)]


def judged_or_none(
    baseline_s: Numbers,
    candidate_s: Numbers,
    rounds_by_process: Sequence[int],
    assumed_sd: float,
    pool: Part | None = None,
) -> PairedEstimate | None:
    """As ``judged``, but None for samples that cannot be used."""
    try:
        return judged(baseline_s, candidate_s, rounds_by_process, assumed_sd, pool)
    except ValueError:
        return None


def _of_one(rounds: PairedEstimate, logs: Floats, tau: float) -> PairedEstimate:
    log = rounds.log
    rounds = replace(rounds, assumed_sd=tau or None, **steadiness([logs])._asdict())
    if rounds.interval is None or rounds.interval_90 is None:
        return replace(rounds, interval_90=None)  # five rounds have one, without tau and dependence
    assert rounds.rounds_half is not None
    assert rounds.error is not None
    factor = widening(logs)
    interval = _wider(rounds.interval, log, factor, T_95 * tau)
    towards_1 = abs(log - interval[0 if log > 0 else 1])
    p_value = rounds.p_value
    if (tau or factor > 1) and towards_1 > 0:  # below 0.05 exactly where the interval excludes 1
        p_value = max(p_value, 2 * float(special.ndtr(-Z_95 * abs(log) / towards_1)))
    return replace(
        rounds,
        interval=interval,
        interval_90=_wider(rounds.interval_90, log, factor, T_90 * tau),
        p_value=p_value,
        error=factor * rounds.error,
        rounds_half=factor * rounds.rounds_half,
        widened=factor,
    )


def _wider(interval: Interval, log: float, factor: float, more: float) -> Interval:
    """Each side times ``factor``, and ``more`` in quadrature."""
    low, high = interval
    return log - math.hypot(factor * (log - low), more), log + math.hypot(factor * (high - log), more)


def _of_several(
    whole: PairedEstimate, alone: Sequence[PairedEstimate], logs: Sequence[Floats], pool: Part
) -> PairedEstimate:
    spread, count, _ = _spread(alone)
    variance, df = moderated(spread, count, pool)
    mean = student(float(np.mean([process.log for process in alone])), [Part(variance / count, df)])
    widths = [process.rounds_half for process in alone if process.rounds_half is not None]
    return replace(
        whole,
        **{**_of_student(mean), "df": df},
        processes=count,
        between_sd=spread,
        rounds_half=float(np.mean(widths)) / math.sqrt(count) if widths else None,
        **steadiness(logs)._asdict(),
    )


def _of_student(mean: Estimate) -> dict[str, Any]:
    return {name: getattr(mean, name) for name in STUDENT}


def over_runs(runs: Sequence[PairedEstimate], pool: Part) -> PairedEstimate:
    """Of one result in several runs: the variation between them is measured. ``pool``: of all results."""
    logs, count = [run.log for run in runs], len(runs)
    variance, df = moderated(float(np.std(logs, ddof=1)) if count > 1 else 0.0, count, pool)
    mean = student(float(np.mean(logs)), [Part(variance / count, df)])
    times = [(run.baseline_median_s, run.candidate_median_s, run.speedup_of_medians) for run in runs]
    baseline_s, candidate_s, of_medians = np.exp(np.log(times).mean(axis=0)).tolist()
    return PairedEstimate(
        **_of_student(mean),
        n=sum(run.n for run in runs),
        processes=sum(run.processes for run in runs),
        baseline_median_s=baseline_s,
        candidate_median_s=candidate_s,
        speedup_of_medians=of_medians,
        runs=tuple(runs),
    )


def difference(first: OfRounds | None, second: OfRounds | None) -> OfRounds | None:
    """The change of ln(speedup) between two measurements in different processes; None if unknown.

    If the first is over several runs, the second is one more run, which varies as they do: nothing is
    assumed. Noise of its own that it has beyond theirs (fewer rounds) is added.
    """
    if first is None or second is None or first.error is None or second.error is None:
        return None
    if first.runs:
        *ours, own = (sum(part for part, _ in _parts(side)) for side in (*first.runs, second))
        more = own - sum(ours) / len(ours)
        parts = [Part(first.error**2 * (len(first.runs) + 1), first.df), Part(max(0.0, more), second.df)]
    else:
        parts = [part for side in (first, second) for part in _parts(side)]
    halves = [side.rounds_half for side in (first, second) if side.rounds_half is not None]
    return OfRounds(
        **_of_student(student(second.log - first.log, parts)),
        n=min(first.n, second.n),
        processes=max(first.processes, second.processes),
        assumed_sd=math.hypot(first.assumed_sd or 0.0, second.assumed_sd or 0.0) or None,
        rounds_half=math.hypot(*halves) if halves else None,
        runs=first.runs,
    )


def _parts(estimate: OfRounds) -> list[Part]:
    """Of its rounds or processes, and what is assumed."""
    return [Part((estimate.error or 0.0) ** 2, estimate.df), Part((estimate.assumed_sd or 0.0) ** 2, TAU_DF)]


Spread = tuple[float, int, float]
"""Standard deviation between processes, their number, mean variance that their rounds explain."""


def spread_of(baseline_s: Numbers, candidate_s: Numbers, rounds_by_process: Sequence[int]) -> Spread | None:
    """None for fewer than two processes, and for samples that cannot be used."""
    if len(rounds_by_process) < 2:
        return None
    try:
        return _spread(each_process(baseline_s, candidate_s, rounds_by_process))
    except ValueError:
        return None


def _spread(alone: Sequence[PairedEstimate]) -> Spread:
    widths = [process.rounds_half for process in alone if process.rounds_half is not None]
    explained = float(np.mean(np.square(widths))) / Z_95**2 if widths else 0.0
    return float(np.std([process.log for process in alone], ddof=1)), len(alone), explained


def pool_of(spreads: Sequence[Spread], assumed_sd: float) -> Part:
    """What models with these spreads say together, beside what is assumed."""
    explained = sum(variance for _, _, variance in spreads) / len(spreads)
    return pooled([(spread, count) for spread, count, _ in spreads], assumed_sd**2 + explained)


def verdict(estimate: Estimate | None, q_value: float | None, limits: Limits) -> Verdict | None:
    """The verdict, or None without an estimate. The limits are 1 + t and 1 / (1 + t), t the threshold.

    Faster or slower: significant, the whole 95 % interval beyond a limit, and both halves of the rounds
    beyond it. Same: the whole 90 % interval between the limits. Unsteady: the guard found that the rounds
    have no common speedup, and parts of them disagree with the verdict. Otherwise inconclusive.
    """
    if estimate is None:
        return None
    limit, segments, everything = limits.log, estimate.segments, (-math.inf, math.inf)
    (low, high), (low_90, high_90) = estimate.interval or everything, estimate.interval_90 or everything
    significant = q_value is not None and q_value < limits.alpha
    if low > limit and significant and min(segments, default=math.inf) > limit:
        return Verdict.FASTER
    if high < -limit and significant and max(segments, default=-math.inf) < -limit:
        return Verdict.SLOWER
    inside = -limit <= low_90 and high_90 <= limit
    if inside and (not estimate.unsteady or all(abs(log) <= limit for log in segments)):
        return Verdict.SAME
    return Verdict.UNSTEADY if estimate.unsteady else Verdict.INCONCLUSIVE


def stands(estimate: PairedEstimate, limits: Limits, *, stretch: float) -> bool:
    """Whether the verdict is closed, and still would be with an interval ``stretch`` times as wide.

    Of one process, the rounds' own interval is stretched, and the assumed variation between processes is
    not: further rounds do not change it.
    """
    if estimate.interval is None or verdict(estimate, estimate.p_value, limits) in OPEN:
        return False
    log, tau = estimate.log, estimate.assumed_sd or 0.0
    if estimate.processes > 1:
        both = filter(None, (estimate.interval, estimate.interval_90))
        half, half_90 = (stretch * ((high - low) / 2) for low, high in both)
    else:
        rounds = stretch * (estimate.rounds_half or 0.0)
        half, half_90 = math.hypot(rounds, T_95 * tau), math.hypot(rounds * Z_90 / Z_95, T_90 * tau)
    wide = replace(estimate, interval=(log - half, log + half), interval_90=(log - half_90, log + half_90))
    return verdict(wide, wide.p_value, limits) not in OPEN


def rounds_can_close(estimate: OfRounds, limits: Limits) -> bool:
    """Whether more rounds of this process could close the verdict, if the speedup stays what it is.

    They narrow the rounds' own interval and leave the assumed variation between processes.
    """
    tau, size = estimate.assumed_sd or 0.0, abs(estimate.log)
    return size - T_95 * tau > limits.log or size + T_90 * tau < limits.log


def needed(estimate: OfRounds, limits: Limits) -> tuple[int | None, int | None]:
    """What would probably close an open verdict if the speedup stays: rounds in one process (None: no number
    would), or processes as long as these (None: more than ``MOST_NAMED``). None for both without an interval.
    """
    if estimate.interval is None:
        return None, None
    limit, size = limits.log, abs(estimate.log)
    inside = size < limit
    gap, z, t, share = (limit - size, Z_90, T_90, 0.95) if inside else (size - limit, Z_95, T_95, 0.975)
    error = (estimate.rounds_half or 0.0) / Z_95
    tau, count = estimate.assumed_sd or 0.0, estimate.processes
    variance, df, rounds = error**2 + tau**2, float(ASSUMED_DF), None
    if count > 1:
        variance, df = count * (estimate.error or 0.0) ** 2, estimate.df
    elif gap > t * tau:
        rounds = math.ceil(estimate.n * (z * error) ** 2 / (gap**2 - (t * tau) ** 2))
        rounds = max(estimate.n + 1, rounds)  # an interval that is not symmetric may need more than this
    return rounds, _enough(gap, share, variance, df - count)


def _enough(gap: float, share: float, variance: float, more_df: float) -> int | None:
    """The least n with Student's interval (n + ``more_df`` degrees of freedom) of n values below ``gap``."""
    numbers = (
        n
        for n in range(2, MOST_NAMED + 1)
        if float(special.stdtrit(n + more_df, share)) * math.sqrt(variance / n) <= gap
    )
    return next(numbers, None)


def pairs_needed(ratio: Estimate, q_value: float, limits: Limits) -> int | None:
    """How many pairs would probably decide, if ratio and scatter stay; None: over ``MOST_NAMED``, or unknown.

    ``ratio`` is the mean of df + 1 paired logarithms. The interval has to leave the limits (or to be within
    them), and p to be so small that q, which stays as many times as large, is below alpha.
    """
    if not ratio.error:
        return None
    size, variance = abs(ratio.log), (ratio.df + 1) * ratio.error**2
    if size < limits.log:
        return _enough(limits.log - size, 0.95, variance, -1)
    numbers = (
        _enough(size - limits.log, 0.975, variance, -1),
        _enough(size, 1 - limits.alpha * ratio.p_value / q_value / 2, variance, -1),
    )
    return None if None in numbers else max(filter(None, numbers))


def judgment(
    estimate: Estimate | None, q_value: float | None, limits: Limits, *, across: bool = False
) -> tuple[Verdict | None, Open | None]:
    """The verdict and why it is open; None for a closed verdict.

    ``across``: the sides are in processes of their own. The verdict is then open below ``LEAST_ACROSS``.
    """
    if q_value is None and estimate is not None:
        q_value = estimate.p_value  # of a candidate that failed: it has no q, and its verdict is in brackets
    few = across and estimate is not None and estimate.processes < LEAST_ACROSS
    word = Verdict.INCONCLUSIVE if few else verdict(estimate, q_value, limits)
    if estimate is None or word not in OPEN:
        return word, None
    if not isinstance(estimate, OfRounds):  # of few pairs of compilations
        count = pairs_needed(estimate, q_value or 1.0, limits)
        closes = f"about {count} of each" if count else f"over {MOST_NAMED} of each"
        return word, Open(reason=Reason.ROUNDS, closes=closes, pairs=count)
    reason = Reason.SIDES if few else _reason(estimate, limits)
    return word, Open(reason=reason, closes=CLOSES.get(reason) or _ways(estimate, limits))


def _reason(estimate: OfRounds, limits: Limits) -> Reason:
    if estimate.interval is None or (estimate.rounds_half is None and estimate.processes < 2):
        return Reason.TOO_FEW_ROUNDS
    if estimate.unsteady_kind is not None:
        return estimate.unsteady_kind
    low, high = estimate.interval
    if low > limits.log or high < -limits.log:
        beyond = all(abs(log) > limits.log and log * low > 0 for log in estimate.segments)
        return Reason.FAMILY if beyond else Reason.HALVES
    if estimate.runs:
        return Reason.RUNS
    single = estimate.processes == 1
    return Reason.ROUNDS if single and rounds_can_close(estimate, limits) else Reason.PROCESSES


def _ways(estimate: OfRounds, limits: Limits) -> str:
    rounds, processes = needed(estimate, limits)
    if rounds:
        unit = 10 ** max(0, len(str(rounds)) - 2)  # rounded up to two digits
        rounds = math.ceil(rounds / unit) * unit
    ways = [f"about {rounds:,} rounds"] if rounds else []
    ways += [f"about {processes} processes"] if processes else []
    return " or ".join(ways) or f"more than {MOST_NAMED} processes"
