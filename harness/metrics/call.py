"""``--explain``: forward and backward apart, and what a call costs before its first operator runs.

After the timed rounds, samples are taken in a random order, without compiling anything:

- of each variant in training, one step with a second reading of the clock between forward and backward;
- of each candidate, steps in a row under three stances of ``torch.compiler.set_stance``: as it is, without
  guards (``skip_guard_eval_unsafe``), and in eager (``force_eager``), which is the same copy of the model.

A difference is the median over rounds. Its interval is that of the sign test, from order statistics
(Conover, Practical Nonparametric Statistics, 3.2).
"""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from harness.metrics import ByVariant, Ended, declared_beside
from harness.schema import BASELINE, Scalar
from harness.timing.measure import quiet_collector

if TYPE_CHECKING:
    from harness.timing.step import Variant

T = TypeVar("T")
WHEN = "end"
WANTED = ("explain",)
METRICS = declared_beside(__file__)
STANCES: Mapping[str, Mapping[str, Any]] = {
    "": {},
    "guards": {"skip_guard_eval_unsafe": True},
    "dynamo": {"stance": "force_eager"},
}
FEWEST, MOST, LIMIT_S = 6, 400, 2.0  # rounds, and the seconds after which no further round begins
SAMPLE_S, MOST_STEPS = 2e-2, 20  # short steps run in a row, as in a program: one alone finds colder caches
LONG_S = 0.05  # the noise of longer steps hides the microseconds of a call


def measure(ended: Ended) -> ByVariant:
    from harness.loading.sizes import batches

    numbers: ByVariant = {name: {} for name in ended.variants}
    program = ended.variants[BASELINE].program
    # one lap after each forward: with several batches in a step, its halves cannot be told apart
    single = len(batches(program)) < 2
    if program.training and single and ended.job.protocol.optimizer == "none":  # it follows the last lap
        apart = {name: variant for name, variant in ended.variants.items() if not variant.whole}
        halves = {name: partial(_halves, variant, ended) for name, variant in apart.items()}
        for name, times in alternating(halves).items():
            forward, backward = (statistics.median(part) * 1e3 for part in zip(*times, strict=True))
            numbers[name] = {"forward_ms": forward, "backward_ms": backward}
    for name, variant in ended.variants.items():
        if name != BASELINE:
            numbers[name] |= cost_of_call(variant, ended)
    return numbers


def cost_of_call(variant: Variant, ended: Ended) -> dict[str, Scalar]:
    """What guards and all of Dynamo add to the step, in us; {} for a long step, or without stances."""
    import torch

    set_stance = getattr(getattr(torch, "compiler", None), "set_stance", None)
    if set_stance is None:  # before torch 2.6; torch 2.0 has no torch.compiler
        return {}

    def sample(stance: Mapping[str, Any], steps: int) -> float:
        """Seconds of a step; the first step after a change of stance finds other caches, and is not timed."""
        set_stance(**stance)
        variant.step()
        ended.synchronize()
        start = time.perf_counter()
        for _ in range(steps):
            variant.step()
        ended.synchronize()
        return (time.perf_counter() - start) / steps

    try:
        step_s = sample({}, 1)
        if step_s > LONG_S:
            return {}
        steps = min(MOST_STEPS, int(SAMPLE_S / step_s) + 1)
        times = alternating({name: partial(sample, stance, steps) for name, stance in STANCES.items()})
    except TypeError:  # before torch 2.7 no stance without guards
        return {}
    finally:
        set_stance()
        variant.release()
    numbers: dict[str, Scalar] = {}
    for name in ("guards", "dynamo"):
        both = zip(times[""], times[name], strict=True)
        value, low, high = median([(plain - other) * 1e6 for plain, other in both])
        numbers |= {f"{name}_us": value, f"{name}_us_low": low, f"{name}_us_high": high}
    return numbers


def alternating(steps: Mapping[str, Callable[[], T]]) -> dict[str, list[T]]:
    """What the functions return, by name, from rounds in a random order, without garbage collection.

    The first round does not count.
    """
    order, shuffled = list(steps), random.Random(0)
    results: dict[str, list[T]] = {name: [] for name in steps}
    for step in steps.values():
        step()
    start = time.perf_counter()
    with quiet_collector(thorough=False):
        for done in range(MOST):
            if done >= FEWEST and time.perf_counter() - start > LIMIT_S:
                break
            shuffled.shuffle(order)
            for name in order:
                results[name].append(steps[name]())
    return results


def median(values: list[float]) -> tuple[float, float, float]:
    """The median with its interval of at least 95 %: the order statistics of the sign test."""
    ordered, n = sorted(values), len(values)
    left_out = max(0, int((n - 1 - 1.96 * n**0.5) / 2))
    return statistics.median(ordered), ordered[left_out], ordered[n - 1 - left_out]


def _halves(variant: Variant, ended: Ended) -> tuple[float, float]:
    times: list[float] = []

    def lap() -> None:
        ended.synchronize()
        times.append(time.perf_counter())

    step = variant.step_with(lap)
    lap()
    step()
    lap()
    return times[1] - times[0], times[-1] - times[-2]
