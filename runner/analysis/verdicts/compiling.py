"""The time of several compilations, and the steps after which compiling has paid.

Times of compilations are positive and differ by factors, so their statistics are those of logarithms: the
geometric mean, with Student's interval. In alternation (the same round), two sides are paired; two runs are
compared by Welch's two-sample interval.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from statistics import median

from harness.declared import finite
from harness.metrics import of_compiling
from harness.schema import AS_FOUND, CACHE_FILE, COLD, PACKAGE, WARM, Record, Scalar
from runner.analysis.ratios import judged
from runner.analysis.results import (
    COMPILATION,
    COMPILATIONS,
    FIRST_STEP,
    FIRST_STEPS,
    CompileStart,
    Estimate,
    PairedEstimate,
    Ratio,
    Result,
    Side,
)
from runner.analysis.statistics import Part, mean_of_logs, student, typical
from runner.analysis.verdicts import BreakEven, Paying

LATENCY, WAITING = "compilation_latency_s", "compile_waiting_s"


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


def center(times: Sequence[float]) -> float | None:
    """The geometric mean of the times, or the only time."""
    return times[0] if len(times) == 1 else typical(times).factor if times else None


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
    if not first or not second:
        return None
    before, after = typical(first), typical(second)
    if before.error is None or after.error is None:
        return None
    parts = [Part(side.error**2, side.df) for side in (before, after) if side.error]
    return student(after.log - before.log, parts)


def compile_starts(comparisons: Sequence[Result]) -> tuple[CompileStart, ...]:
    """Of each candidate with ``--compile-runs``: its cold starts, then its warm starts."""
    return tuple(
        CompileStart(
            comparison=comparison,
            start=start,
            means={name: mean for name in of_compiling() if (mean := _mean(comparison.record, start, name))},
            time=typical([*times.values()]),
        )
        for comparison in comparisons
        for start in (COLD, WARM)
        if (times := by_round(comparison.record, start))
    )


def _mean(record: Record, start: str, name: str) -> float | None:
    numbers = by_round(record, start, name)  # a geometric mean of numbers with a zero does not exist
    return center([*numbers.values()]) if numbers.keys() >= by_round(record, start).keys() else None


def compile_pairs(comparisons: Sequence[Result]) -> tuple[Ratio, ...]:
    """Of each job with ``--compile-runs``: the cold and the warm start of every two candidates.

    A warm start is compared with the cold start of its own candidate, too.
    """
    jobs: dict[str, list[Result]] = {}
    for comparison in comparisons:
        if by_round(comparison.record, COLD):
            jobs.setdefault(comparison.record.job.key, []).append(comparison)
    sides = [(own, WARM, own, COLD) for members in jobs.values() for own in members]
    sides += [
        (first, start, second, start)
        for members in jobs.values()
        for first, second in itertools.combinations(members, 2)
        for start in (COLD, WARM)
    ]
    return _between_starts(COMPILATIONS, COMPILATION, by_round, sides)


def _between_starts(
    family: str,
    quantity: str,
    times: Callable[[Record, str], Mapping[int, float]],
    sides: Iterable[tuple[Result, str, Result, str]],
) -> tuple[Ratio, ...]:
    rows = [
        Ratio(
            family=family,
            quantity=quantity,
            place=own.place,
            record=own.record,
            other=other.record,
            first=Side(own.compiler, start),
            second=Side(other.compiler, other_start),
            estimate=paired_ratio(times(other.record, other_start), times(own.record, start)),
        )
        for own, start, other, other_start in sides
    ]
    return judged([row for row in rows if row.estimate is not None])


def first_step_pairs(comparisons: Sequence[Result]) -> tuple[Ratio, ...]:
    """Of each candidate with ``--start-up``: each of its starts over its cold start, by their first steps."""
    sides = [(own, start, own, COLD) for own in comparisons for start in (WARM, CACHE_FILE, PACKAGE)]
    return _between_starts(FIRST_STEPS, FIRST_STEP, first_step_by_round, sides)


def break_even(times: Sequence[float], speedup: PairedEstimate | None) -> BreakEven | None:
    """None without a time of compiling, or without an interval of the speedup."""
    if not times or speedup is None or speedup.low is None or speedup.high is None:
        return None
    cost, eager_s = typical(times), speedup.baseline_median_s

    def steps(seconds: float | None, factor: float) -> float:
        seconds = cost.factor if seconds is None else seconds
        return seconds / (eager_s * (1 - 1 / factor)) if factor > 1 else math.inf

    return BreakEven(
        steps=steps(cost.factor, speedup.factor),
        low=steps(cost.low, speedup.high),
        high=steps(cost.high, speedup.low),
        whole=cost.interval is not None,
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
