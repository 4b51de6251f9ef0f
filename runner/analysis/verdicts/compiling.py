"""The time of several compilations, and the steps after which compiling has paid.

Times of compilations are positive and differ by factors, so their statistics are those of logarithms: the
geometric mean, with Student's interval. In alternation (the same round), two sides are paired; two runs are
compared by Welch's two-sample interval.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from statistics import median

from harness.declared import finite
from harness.metrics import of_compiling
from harness.schema import AS_FOUND, COLD, WARM, Record, Scalar
from runner.analysis.comparison import Comparison, CompilePair, CompileStart
from runner.analysis.estimate import BreakEven, Estimate, Limits, PairedEstimate, Paying, Typical, Verdict
from runner.analysis.statistics import false_discovery, mean_of_logs, student
from runner.analysis.verdicts.decision import pairs_needed, verdict

LATENCY, WAITING = "compilation_latency_s", "compile_waiting_s"
Side = tuple[Comparison, str]
"""A candidate, and where its compilations began (cold or warm)."""


def is_warm(metrics: Mapping[str, Scalar]) -> bool | None:
    """Whether the compiler used its caches; None if it did not say."""
    hits, misses = (finite(metrics.get(f"compile_cache_{name}")) for name in ("hits", "misses"))
    return bool(hits) if hits or misses else None


def compilations_of(record: Record) -> list[float]:
    """The times (s) that a compilation of this record takes: one, or several of the same kind.

    The cold compilations of ``--compile-runs``; otherwise that of the timed process, with those of other
    processes (``--processes``) whose caches were in the same state.
    """
    if cold := by_round(record, COLD):
        return list(cold.values())
    first = finite(record.metrics.get(LATENCY))
    if first is None:
        return []
    state = is_warm(record.metrics)
    alike = [c.metrics for c in record.compilations if c.start == AS_FOUND and is_warm(c.metrics) == state]
    return [first, *(time for metrics in alike if (time := finite(metrics.get(LATENCY))) is not None)]


def typical(times: Sequence[float]) -> Estimate | None:
    """The geometric mean of the times with its interval; None for fewer than two times above 0."""
    return mean_of_logs([math.log(time) for time in times]) if all(time > 0 for time in times) else None


def center(times: Sequence[float]) -> float | None:
    """The geometric mean of the times, or the only time."""
    return typical_of(times).value if times else None


def typical_of(values: Sequence[float]) -> Typical:
    """The geometric mean of one or more values above 0, with its interval."""
    estimate = typical(values)
    if estimate is None:
        return Typical(value=values[0])
    return Typical(value=estimate.factor, low=estimate.low, high=estimate.high)


def by_round(record: Record, start: str, name: str = LATENCY) -> dict[int, float]:
    """Round -> the number of the compilation of ``--compile-runs`` that began so in this round.

    Its time is that of a processor without other work: less ``compile_waiting_s``.
    """
    begun = [c for c in record.compilations if c.start == start and not c.first_calls_s]
    numbers = {c.round: finite(c.metrics.get(name)) for c in begun}
    if name == LATENCY:
        waits = {c.round: finite(c.metrics.get(WAITING)) or 0.0 for c in begun}
        numbers = {number: value and max(0.0, value - waits[number]) for number, value in numbers.items()}
    return {number: value for number, value in numbers.items() if value}


def first_step_by_round(record: Record, start: str) -> dict[int, float]:
    """Round -> seconds of the first step of the race (``--start-up``) that began so."""
    begun = [c for c in record.compilations if c.start == start and c.first_calls_s]
    return {c.round: c.first_calls_s[0] for c in begun}


def paired_ratio(slower: Mapping[int, float], faster: Mapping[int, float]) -> Estimate | None:
    """ln(slower / faster) from the rounds that both have: Student's interval of the paired log ratios.

    The signed-rank test of the steps needs six pairs; compilations are fewer. None below two rounds.
    """
    shared = [number for number in slower if number in faster]
    return mean_of_logs([math.log(slower[number] / faster[number]) for number in shared])


def unpaired_ratio(first: Sequence[float], second: Sequence[float]) -> Estimate | None:
    """ln(second / first) of two runs: Welch's interval of the logarithms. None below two times a side."""
    before, after = typical(first), typical(second)
    if before is None or after is None or before.error is None or after.error is None:
        return None
    return student(
        after.log - before.log, [(side.error**2, side.df) for side in (before, after) if side.error]
    )


def compile_starts(comparisons: Sequence[Comparison]) -> tuple[CompileStart, ...]:
    """Of each candidate with ``--compile-runs``: its cold starts, then its warm starts."""
    return tuple(
        CompileStart(
            comparison=comparison,
            start=start,
            n=len(times),
            means={name: mean for name in of_compiling() if (mean := _mean(comparison.record, start, name))},
            time=typical_of([*times.values()]),
        )
        for comparison in comparisons
        for start in (COLD, WARM)
        if (times := by_round(comparison.record, start))
    )


def _mean(record: Record, start: str, name: str) -> float | None:
    numbers = by_round(record, start, name)  # a geometric mean of numbers with a zero does not exist
    return center([*numbers.values()]) if numbers.keys() >= by_round(record, start).keys() else None


def compile_pairs(comparisons: Sequence[Comparison]) -> tuple[CompilePair, ...]:
    """Of each job with ``--compile-runs``: the cold and the warm start of every two candidates.

    A warm start is compared with the cold start of its own candidate, too. The family of q is all pairs.
    """
    jobs: dict[str, list[Comparison]] = {}
    for comparison in comparisons:
        if by_round(comparison.record, COLD):
            jobs.setdefault(comparison.record.job.key, []).append(comparison)
    sides = [
        *(((c, WARM), (c, COLD)) for members in jobs.values() for c in members),
        *(
            ((first, start), (second, start))
            for members in jobs.values()
            for first, second in itertools.combinations(members, 2)
            for start in (COLD, WARM)
        ),
    ]
    times = [tuple(by_round(c.record, start) for c, start in pair) for pair in sides]
    ratios = [paired_ratio(second, first) for first, second in times]
    q_values = false_discovery([ratio.p_value if ratio else None for ratio in ratios])
    return tuple(
        _pair(first, second, ratio, q)
        for (first, second), ratio, q in zip(sides, ratios, q_values, strict=True)
        if ratio is not None
    )


def _pair(first: Side, second: Side, ratio: Estimate, q_value: float | None) -> CompilePair:
    limits = Limits.of(first[0].record.job.protocol)
    answer = verdict(ratio, q_value, limits)
    return CompilePair(
        first=first[0],
        first_start=first[1],
        second=second[0],
        second_start=second[1],
        ratio=ratio,
        q_value=q_value,
        verdict=answer,
        needed=pairs_needed(ratio, q_value, limits) if q_value and answer is Verdict.INCONCLUSIVE else None,
    )


def break_even(times: Sequence[float], speedup: PairedEstimate | None) -> BreakEven | None:
    """None without a time of compiling, or without an interval of the speedup."""
    if not times or speedup is None or speedup.low is None or speedup.high is None:
        return None
    cost, eager_s = typical(times), speedup.baseline_median_s

    def steps(seconds: float | None, factor: float) -> float:
        return (seconds or 0.0) / (eager_s * (1 - 1 / factor)) if factor > 1 else math.inf

    single = times[0]
    return BreakEven(
        steps=steps(cost.factor if cost else single, speedup.factor),
        low=steps(cost.low if cost else single, speedup.high),
        high=steps(cost.high if cost else single, speedup.low),
        whole=cost is not None,
    )


def paying(known: Sequence[BreakEven]) -> Paying:
    """The break-even of several models together: a median over all, in which *never* counts as infinite."""
    if not known:
        return Paying()
    whole = all(even.whole for even in known)
    pay = [even.steps for even in known if even.pays == "yes"]
    return Paying(
        models=len(known),
        pays=len(pay),
        never=sum(even.pays == "no" for even in known),
        median_of_paying=median(pay) if pay else None,
        median=median(even.steps for even in known),
        low=median(even.low for even in known) if whole else None,
        high=median(even.high for even in known) if whole else None,
    )
