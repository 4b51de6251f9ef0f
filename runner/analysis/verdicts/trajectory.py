"""Whether a training run stays where roundings lead eager: floats in, a verdict out. See docs/NUMERICS.md.

The steps are ten windows. In each, the distance of a run from eager is the RMS of the differences of its loss
over the steps, relative to the RMS of eager's loss; of the gradient norm, alike; and of the parameters,
relative to the way that eager's have come. A candidate is *outside* in the first window where a distance is
beyond ``FACTOR`` times the largest of four noisy eagers. Where these no longer agree with eager, nothing is
judged.

Where a value crosses a kink, as of a ReLU, a right run leaves the others by a jump. It is no fault of its
compiler: the candidate then repeats its run from weights with other last digits, and its distance is the
smallest of three.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import pairwise
from statistics import fmean

from harness.recorded.numerics import AGAIN, NOISY, SEEDS
from harness.schema import Course, Record, Scalar, Trajectory
from runner.analysis.results import Estimate

WINDOWS = 10
FACTOR = 3.0  # of benchmarks/trajectories.py: see docs/NUMERICS.md
AGREE, UNITS = 0.01, 2.0  # of the loss, or so many units in its last place
RANDOM = "; it may draw other random numbers"  # which is no fault
EXTRA = "; {first} has a gradient, which eager lacks ({count} such)"
POINTS = 50  # of a curve
NOISE, SEED = "noisy eager (4)", "another seed"
QUANTITIES = ("loss", "gradient norm", "parameters")

Distances = Sequence[Sequence[float]]
"""Of each of ``QUANTITIES``, by window."""


class Stays(str, Enum):
    """The verdict on a training run."""

    INSIDE = "inside"
    OUTSIDE = "outside"
    CHAOS = "inside up to the horizon"  # and not judged after it
    UNSTABLE = "eager itself is outside"  # in its second run: cannot be judged


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """``horizon``: the last step at which it could be judged. ``step``: the first of the window outside.

    ``ratio``: the largest distance in units of the largest noisy one, and the ``quantity`` whose it is.
    """

    stays: Stays
    horizon: int
    step: int | None = None
    ratio: float = 0.0
    quantity: str = ""


def judged(trajectory: Trajectory) -> Judged:
    """The verdict on the candidate."""
    noisy = [distances(course, trajectory) for course in trajectory.courses if course.name in NOISY]
    for course in trajectory.courses:
        if course.name == AGAIN:
            again = judge([distances(course, trajectory)], noisy, trajectory.steps, trajectory.resolution)
            if again.stays is Stays.OUTSIDE:
                return Judged(stays=Stays.UNSTABLE, horizon=0, ratio=again.ratio, quantity=again.quantity)
    runs = [distances(course, trajectory) for course in (trajectory.candidate, *trajectory.repeats)]
    return judge(runs, noisy, trajectory.steps, trajectory.resolution)


def judge(runs: Sequence[Distances], noisy: Sequence[Distances], steps: int, resolution: float) -> Judged:
    """Of the runs, the nearest counts. ``resolution``: machine epsilon of the loss.

    One unit in its last place, at one step of a window, is no distance.
    """
    ends, agree = _ends(steps), max(AGREE, UNITS * resolution)
    limit, own = _each(max, noisy), _each(min, runs)
    horizon, ratio, quantity = 0, 0.0, ""
    for window, (begin, end) in enumerate(pairwise(ends)):
        if not limit[0][window] <= agree:
            break
        horizon = end
        least = resolution / math.sqrt(end - begin)
        for name, ours, theirs in zip(QUANTITIES, own, limit, strict=True):
            further = ours[window] / max(theirs[window], least)
            ratio, quantity = (further, name) if further > ratio else (ratio, quantity)
        if ratio > FACTOR:
            return Judged(stays=Stays.OUTSIDE, horizon=end, step=begin + 1, ratio=ratio, quantity=quantity)
    stays = Stays.INSIDE if horizon == steps else Stays.CHAOS
    return Judged(stays=stays, horizon=horizon, ratio=ratio, quantity=quantity)


def distances(course: Course, trajectory: Trajectory) -> Distances:
    """A run that is not finite is infinitely far."""
    eager, windows = trajectory.eager, [*pairwise(_ends(trajectory.steps))]

    def relative(own: Sequence[float], size: Sequence[float]) -> list[float]:
        return [_finite(_rms(own[a:b]) / (_rms(size[a:b]) or 1.0)) for a, b in windows]

    there = [*zip(trajectory.places, course.parameters, strict=True)]
    parameters = [_finite(_rms([d for place, d in there if a < place <= b])) for a, b in windows]
    return relative(course.loss, eager.loss), relative(course.gradient_norm, eager.gradient_norm), parameters


def numbers(record: Record) -> dict[str, Scalar]:
    """The columns of a result; distances of the loss are the RMS over all windows up to the horizon."""
    trajectory = record.trajectory
    if trajectory is None:
        return {}
    verdict = judged(trajectory)
    random = record.model is not None and record.model.generators
    extra, why = trajectory.candidate.extra_gradients, ""
    if verdict.stays is Stays.OUTSIDE:
        why = EXTRA.format(first=extra[0], count=len(extra)) if extra else RANDOM if random else ""
    windows = sum(end <= verdict.horizon for end in _ends(trajectory.steps)[1:])

    def loss(courses: Iterable[Course]) -> float | None:
        each = [_rms(distances(course, trajectory)[0][:windows]) for course in courses if windows]
        return max(each, default=None)

    by_name = {course.name: course for course in trajectory.courses}
    every = (trajectory.eager, *trajectory.courses, trajectory.candidate, *trajectory.repeats)
    return {
        "trajectory": text(verdict) + why,
        "trajectory_step": verdict.step,
        "trajectory_horizon": verdict.horizon,
        "trajectory_ratio": verdict.ratio,
        "trajectory_quantity": verdict.quantity,
        "trajectory_loss": loss([trajectory.candidate]),
        "trajectory_noisy_loss": loss(by_name[name] for name in NOISY if name in by_name),
        "trajectory_seed_loss": loss(by_name[name] for name in SEEDS if name in by_name),
        "trajectory_s": sum(course.seconds for course in every),
    }


def curves_of_loss(trajectory: Trajectory) -> dict[str, list[tuple[float, Estimate]]]:
    """Of noisy eagers, of seeds, of the candidate: step, and mean distance with its range. None are 0."""
    size, each = trajectory.eager.loss, max(1, trajectory.steps // POINTS)
    groups = {
        NOISE: [course for course in trajectory.courses if course.name in NOISY],
        SEED: [course for course in trajectory.courses if course.name in SEEDS],
        trajectory.candidate.name: [trajectory.candidate],
    }
    curves: dict[str, list[tuple[float, Estimate]]] = {name: [] for name in groups}
    for name, courses in groups.items():
        for end in range(each, trajectory.steps + 1, each):
            part = slice(end - each, end)
            values = [_rms(course.loss[part]) / (_rms(size[part]) or 1.0) for course in courses]
            logs = [math.log(value) for value in values if 0 < value < math.inf]
            if logs:
                curves[name].append((end, Estimate(log=fmean(logs), interval=(min(logs), max(logs)))))
    return curves


def text(verdict: Judged) -> str:
    """``inside``, ``outside from step 41 (loss)``, ``inside up to step 120, chaos after it``"""
    if verdict.stays is Stays.OUTSIDE:
        return f"outside from step {verdict.step} ({verdict.quantity})"
    if verdict.stays is not Stays.CHAOS:
        return str(verdict.stays.value)
    return (
        f"inside up to step {verdict.horizon}, chaos after it"
        if verdict.horizon
        else "not judged: chaos from step 1"
    )


def _ends(steps: int) -> list[int]:
    return [math.ceil(steps * n / WINDOWS) for n in range(WINDOWS + 1)]


def _each(choose: Callable[[Iterable[float]], float], runs: Sequence[Distances]) -> Distances:
    """The largest or the smallest of all runs, by quantity and window."""
    return [[choose(values) for values in zip(*of_each, strict=True)] for of_each in zip(*runs, strict=True)]


def _rms(values: Sequence[float]) -> float:
    return math.sqrt(fmean(value * value for value in values))


def _finite(value: float) -> float:
    return value if math.isfinite(value) else math.inf
