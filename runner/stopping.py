"""When a job has been measured enough. Pure policy: no clock, no process.

Rounds come in batches, so that the parent sleeps while the worker times, and
looks at the intervals only between batches. Stopping at the first narrow
interval would favour intervals that are narrow by luck: coverage of the 95 %
interval fell to 92.7 % in simulation. So the interval must have been narrow
already without the last few rounds, which brings it back to 94-96 %
(docs/METHODOLOGY.md has the table).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from harness.schema import Protocol
from runner.statistics import paired_speedup

Pairs = Mapping[str, tuple[Sequence[float], Sequence[float]]]
"""For each candidate its (baseline seconds, candidate seconds), round by round."""

SMALLEST_BATCH = 5  # also how many last rounds the interval must have been narrow without
LARGEST_BATCH = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """How many rounds to run now, 0 to stop, and why; no round begins later than ``within_s`` from now."""

    rounds: int
    reason: str
    within_s: float = 1e9


def decide(protocol: Protocol, pairs: Pairs, elapsed_s: float) -> Decision:
    """What to do after the rounds in ``pairs``, which took ``elapsed_s`` seconds.

    Candidates may differ in rounds (a batch in which one recompiled does not
    count for it); the one with the fewest decides.
    """
    done = min((len(baseline) for baseline, _ in pairs.values()), default=0)
    if protocol.repeat is not None:
        left = max(0, protocol.repeat - done)
        return Decision(rounds=min(left, LARGEST_BATCH), reason="fixed count")
    if done < protocol.min_rounds:
        return Decision(rounds=protocol.min_rounds - done, reason="at least")
    if done >= protocol.max_rounds:
        return Decision(rounds=0, reason="most rounds")
    if all(_precise(*columns, protocol.precision) for columns in pairs.values()):
        return Decision(rounds=0, reason="precise")
    affordable = _affordable(done, elapsed_s, protocol.max_measure_s)
    if affordable < 1:
        return Decision(rounds=0, reason="out of time")
    needed = max(_needed(*columns, protocol.precision) for columns in pairs.values())
    batch = min(LARGEST_BATCH, max(SMALLEST_BATCH, math.ceil((needed - done) / 2)))
    return Decision(
        rounds=min(batch, affordable, protocol.max_rounds - done),
        reason="not yet precise",
        within_s=protocol.max_measure_s - elapsed_s,
    )


def half_width(baseline: Sequence[float], candidate: Sequence[float]) -> float:
    """Half the 95 % interval's width in the logarithm of the speedup; infinite where there is none."""
    estimate = paired_speedup(baseline, candidate)
    if estimate.ci_low is None or estimate.ci_high is None:
        return math.inf
    return math.log(estimate.ci_high / estimate.ci_low) / 2


def _precise(baseline: Sequence[float], candidate: Sequence[float], precision: float) -> bool:
    """Narrow now, and already narrow without the last few rounds."""
    limit = math.log1p(precision)
    earlier = len(baseline) - SMALLEST_BATCH
    if earlier < 1 or half_width(baseline, candidate) > limit:
        return False
    return half_width(baseline[:earlier], candidate[:earlier]) <= limit


def _needed(baseline: Sequence[float], candidate: Sequence[float], precision: float) -> float:
    """Rounds for the interval to be narrow, as its width falls with the square root of their number."""
    width = half_width(baseline, candidate)
    if math.isinf(width):
        return len(baseline) + LARGEST_BATCH
    return len(baseline) * (width / math.log1p(precision)) ** 2


def _affordable(done: int, elapsed_s: float, budget_s: float) -> int:
    if elapsed_s <= 0 or done == 0:
        return LARGEST_BATCH
    return math.floor((budget_s - elapsed_s) / (elapsed_s / done))
