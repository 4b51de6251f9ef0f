"""Whether a training run stays where roundings lead eager: floats in, a verdict out. See docs/NUMERICS.md.

The steps are ten windows. In each, the distance of a run from eager is the RMS of the difference over the
steps, relative to eager's RMS, of the loss and of the gradient norm; and that of the parameters, relative to
the way that eager's have come. A run is *outside* in the first window where a distance is beyond ``FACTOR``
times the largest of four noisy eagers. Where their loss no longer agrees with eager's, nothing is judged.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean

from harness.schema import Course, Trajectory

WINDOWS = 10
FACTOR = 5.0
AGREE = 0.01
INSIDE, OUTSIDE, CHAOS, UNSTABLE = "inside", "outside", "chaos", "eager itself leaves"
QUANTITIES = ("loss", "gradient norm", "parameters")

Distances = tuple[Sequence[float], Sequence[float], Sequence[float]]
"""Of each of ``QUANTITIES``, by window."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """``step``: the first of the window where it is outside. ``horizon``: the last step that is judged.

    ``ratio``: the largest distance in units of the largest noisy one, up to the horizon or to ``step``;
    ``quantity``: whose it is. ``own``, ``noisy``, ``seed``: distances of the loss up to the horizon.
    """

    verdict: str
    horizon: int
    step: int | None = None
    ratio: float = 0.0
    quantity: str = ""


def ends(steps: int) -> list[int]:
    return [math.ceil(steps * n / WINDOWS) for n in range(WINDOWS + 1)]


def _rms(values: Sequence[float]) -> float:
    return math.sqrt(fmean(value * value for value in values))


def distances(course: Course, trajectory: Trajectory) -> Distances:
    """A run that is not finite is infinitely far."""
    eager, windows = trajectory.eager, list(pairwise(ends(trajectory.steps)))

    def relative(own: Sequence[float], size: Sequence[float]) -> list[float]:
        both = ((_rms(own[a:b]), _rms(size[a:b])) for a, b in windows)
        return [_finite(distance / (scale or 1.0)) for distance, scale in both]

    there = list(zip(trajectory.places, course.parameters, strict=True))
    parameters = [_finite(_rms([d for place, d in there if a < place <= b])) for a, b in windows]
    return relative(course.loss, eager.loss), relative(course.gradient_norm, eager.gradient_norm), parameters


def _finite(value: float) -> float:
    return value if math.isfinite(value) else math.inf


def judge(own: Distances, noisy: Sequence[Distances], steps: int, resolution: float) -> Judged:
    """``resolution``: machine epsilon of the loss. A unit of its last place at one step is no distance."""
    limits = ends(steps)
    largest = [[max(values) for values in zip(*(n[q] for n in noisy), strict=True)] for q in range(3)]
    horizon, highest = 0, (0.0, "")
    for window, (begin, end) in enumerate(pairwise(limits)):
        if not largest[0][window] <= AGREE:
            break
        horizon = end
        least = resolution / math.sqrt(end - begin)
        ratios = [(own[q][window] / max(largest[q][window], least), QUANTITIES[q]) for q in range(3)]
        highest = max(highest, *ratios)
        if highest[0] > FACTOR:
            return Judged(verdict=OUTSIDE, horizon=end, step=begin + 1, ratio=highest[0], quantity=highest[1])
    return Judged(
        verdict=INSIDE if horizon == steps else CHAOS, horizon=horizon, ratio=highest[0], quantity=highest[1]
    )
