"""The time of several compilations, and the steps after which compiling has paid.

Times of compilations are positive and differ by factors, so their statistics are those of logarithms: the
geometric mean, with Student's interval. In alternation (the same round), two sides are paired; two runs are
compared by Welch's two-sample interval.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import median

from harness.declared import finite
from harness.schema import AS_FOUND, COLD, Record, Scalar
from runner.analysis.estimate import BreakEven, Estimate, PairedEstimate, Paying
from runner.analysis.statistics import mean_of_logs

LATENCY = "compilation_latency_s"


def is_warm(metrics: Mapping[str, Scalar]) -> bool | None:
    """Whether the compiler used its caches; None if it did not say."""
    hits, misses = (finite(metrics.get(f"compile_cache_{name}")) for name in ("hits", "misses"))
    return bool(hits) if hits or misses else None


def compile_times(record: Record, start: str = COLD, name: str = LATENCY) -> list[float]:
    """The numbers ``name`` (s or bytes, above 0) of the compilations that began so, in measured order."""
    numbers = (finite(one.metrics.get(name)) for one in record.compilations if one.start == start)
    return [number for number in numbers if number]


def compilations_of(record: Record) -> list[float]:
    """The times (s) that a compilation of this record takes: one, or several of the same kind.

    The cold compilations of ``--compile-runs``; otherwise that of the timed process, with those of other
    processes (``--processes``) whose caches were in the same state.
    """
    if cold := compile_times(record):
        return cold
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
    estimate = typical(times)
    return estimate.factor if estimate is not None else times[0] if times else None


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
    whole = all(one.whole for one in known)
    pay = [one.steps for one in known if one.pays == "yes"]
    return Paying(
        models=len(known),
        pays=len(pay),
        never=sum(one.pays == "no" for one in known),
        median_of_paying=median(pay) if pay else None,
        median=median(one.steps for one in known),
        low=median(one.low for one in known) if whole else None,
        high=median(one.high for one in known) if whole else None,
    )
