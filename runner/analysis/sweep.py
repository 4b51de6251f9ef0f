"""The curves of ``--sweep``: speedups over an axis, and where they cross 1.

At the points of a curve, y is the log speedup, and low and high are the ends of its 95 % interval. Straight
lines over t, the logarithm of the axis, join each of the three. The crossover is where y is 0, and its
interval holds every t around it with low(t) <= 0 <= high(t). If the true log speedup is straight between the
points, too, this interval covers its crossing in at least 95 %: between two points, the standard error of y
is at most the mean, with the same weights, of their standard errors, of which the band is made.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import groupby, pairwise
from statistics import median

from harness.schema import Case
from runner.analysis.results import Crossover, Curve, Estimate, Result

Point = tuple[float, float, float, float]
"""Value of the axis, log speedup, ends of its interval."""


def curves(comparisons: Sequence[Result]) -> tuple[Curve, ...]:
    """A curve over each axis, for each candidate and all values of the other axes, if a point counts."""
    members: dict[tuple[str, Case, str, str, str], list[Result]] = {}
    for axis in dict.fromkeys(axis for c in comparisons for axis in c.record.job.case.at):
        for comparison in comparisons:
            job, case = comparison.record.job, comparison.record.job.case
            if axis in case.at:
                others = tuple(word for word in case.point if not word.startswith(f"{axis}="))
                alike = replace(case, batch_size=None, sequence=None, prompt_tokens=None, point=others)
                key = (axis, alike, comparison.device, job.dtype, comparison.record.candidate)
                members.setdefault(key, []).append(comparison)
    every = (_curve(axis, case, some) for (axis, case, *_), some in members.items() if len(some) > 1)
    return tuple(curve for curve in every if curve.points)


def _curve(axis: str, case: Case, members: Sequence[Result]) -> Curve:
    ordered = sorted(members, key=lambda c: c.record.job.case.at[axis])
    points, band = {}, {}
    for c in ordered:
        if c.passed and (estimate := c.estimate) and estimate.interval:
            value = c.record.job.case.at[axis]
            points[value], band[value] = c, (value, estimate.log, *estimate.interval)
    across = tuple(crossovers([*band.values()]))
    return Curve(axis=axis, case=case, comparisons=tuple(ordered), points=points, crossovers=across)


def crossovers(points: Sequence[Point]) -> Iterator[Crossover]:
    """The crossovers of a curve, whose points are sorted. An end that no point bounds is None.

    A curve that crosses 1 an even number of times within one interval has none there, and one whose interval
    is open at both ends neither.
    """
    t = [math.log(value) for value, *_ in points]
    y, low, high = ([*_zeros(t, [point[i] for point in points])] for i in (1, 2, 3))
    ends = sorted(place for place, _ in (*low, *high))
    before = {at: max((end for end in ends if end <= at), default=None) for at, _ in y}
    around = {at: (before[at], min((end for end in ends if end >= at), default=None)) for at, _ in y}
    for interval, zeros in groupby(y, lambda zero: around[zero[0]]):
        places = [*zeros]
        if len(places) % 2 and interval != (None, None):
            at, rises = places[len(places) // 2][0], places[0][1]
            begin, end = (None if end is None else math.exp(end) for end in interval)
            yield Crossover(at=math.exp(at), low=begin, high=end, faster=rises)


def _zeros(t: Sequence[float], line: Sequence[float]) -> Iterator[tuple[float, bool]]:
    """Where the line becomes 0 or more, or less than 0, and whether it rises there."""
    for (t0, t1), (y0, y1) in zip(pairwise(t), pairwise(line), strict=True):
        if (y0 < 0) != (y1 < 0):
            yield t0 + (t1 - t0) * y0 / (y0 - y1), y0 < 0


def median_ms(times_s: Sequence[float]) -> Estimate:
    """The median of the rounds, between the ranks of its 95 % interval (the sign test's)."""
    from scipy import special  # reports import this module at once

    ordered = sorted(times_s)
    rank = int(special.bdtrik(0.025, len(ordered), 0.5))
    middle, low, high = (math.log(1e3 * s) for s in (median(ordered), ordered[rank], ordered[-1 - rank]))
    return Estimate(log=middle, interval=(low, high))
