"""When a job has been measured enough. Pure policy: no clock, no process.

Rounds come in batches, so that the parent sleeps while the worker times, and
looks at the intervals only between batches. A candidate is done when its interval
is narrow, or so far from the limits of a verdict that no further round can
change it. Within a time budget that leaves room, a candidate whose narrow
interval still has a limit in it goes on.

Stopping at the first interval that will do would favour intervals that are so by
luck: coverage of the 95 % interval fell to 92.7 % in simulation. So it must
have done already without the last few rounds, and a verdict must hold for
an interval stretched round its estimate (docs/METHODOLOGY.md has the tables).
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
CLEAR = 3.0  # a verdict that cannot change: the interval stretched so much has it too
CLOSED = 1.5  # a verdict that is sought, round after round: a peek at every batch must not find it by luck
WIDEST = 5.0  # times --precision: an interval is to be no wider, however clear the verdict
ROUNDS_IN_BUDGET = 10  # times max_rounds: a time budget may go so far beyond


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """How many rounds to run now, 0 to stop, and why; no round begins later than ``within_s`` from now."""

    rounds: int
    reason: str
    within_s: float = 1e9


def decide(protocol: Protocol, pairs: Pairs, elapsed_s: float, allowance_s: float | None = None) -> Decision:
    """What to do after the rounds in ``pairs``, which took ``elapsed_s`` seconds.

    Candidates may differ in rounds (a batch in which one recompiled does not
    count for it); the one with the fewest decides. ``allowance_s`` is this job's
    share of a time budget: it takes the place of the protocol's own limit of
    time and, as far as it goes, verdicts that are open are pursued.
    """
    done = min((len(baseline) for baseline, _ in pairs.values()), default=0)
    if protocol.repeat is not None:
        left = max(0, protocol.repeat - done)
        return Decision(rounds=min(left, LARGEST_BATCH), reason="fixed count")
    if done < protocol.min_rounds:
        return Decision(rounds=protocol.min_rounds - done, reason="at least")
    most = protocol.max_rounds * (1 if allowance_s is None else ROUNDS_IN_BUDGET)
    if done >= most:
        return Decision(rounds=0, reason="most rounds")
    wanting = [columns for columns in pairs.values() if not _enough(*columns, protocol)]
    pursued = () if allowance_s is None else [c for c in pairs.values() if not _closed(*c, protocol)]
    if not wanting and not pursued:
        return Decision(rounds=0, reason="precise")
    time_s = protocol.max_measure_s if allowance_s is None else allowance_s
    affordable = _affordable(done, elapsed_s, time_s)
    if affordable < 1:
        return Decision(rounds=0, reason="out of time")
    needed = max((_needed(*columns, protocol.precision) for columns in wanting), default=math.inf)
    batch = LARGEST_BATCH
    if math.isfinite(needed):
        batch = min(LARGEST_BATCH, max(SMALLEST_BATCH, math.ceil((needed - done) / 2)))
    return Decision(
        rounds=min(batch, affordable, most - done),
        reason="not yet precise" if wanting else "verdict open",
        within_s=time_s - elapsed_s,
    )


def _enough(baseline: Sequence[float], candidate: Sequence[float], protocol: Protocol) -> bool:
    """Narrow, or clear of every verdict's limits; now, and already without the last few rounds."""
    earlier = len(baseline) - SMALLEST_BATCH
    if earlier < 1:
        return False
    return all(_will_do(baseline[:n], candidate[:n], protocol) for n in (len(baseline), earlier))


def _will_do(baseline: Sequence[float], candidate: Sequence[float], protocol: Protocol) -> bool:
    width = half_width(baseline, candidate)
    if width <= math.log1p(protocol.precision):
        return True
    return width <= math.log1p(WIDEST * protocol.precision) and _verdict_stands(
        baseline, candidate, protocol, CLEAR
    )


def _closed(baseline: Sequence[float], candidate: Sequence[float], protocol: Protocol) -> bool:
    """Whether the verdict is faster, slower or the same, and not by the luck of one look."""
    return _verdict_stands(baseline, candidate, protocol, CLOSED)


def _verdict_stands(
    baseline: Sequence[float], candidate: Sequence[float], protocol: Protocol, stretch: float
) -> bool:
    """Whether the interval, stretched round its estimate, is wholly beyond a limit of "same" or inside."""
    found = paired_speedup(baseline, candidate)
    if found.ci_low is None or found.ci_high is None:
        return False
    centre, limit = math.log(found.speedup), math.log1p(protocol.noise_threshold)
    low = centre - stretch * (centre - math.log(found.ci_low))
    high = centre + stretch * (math.log(found.ci_high) - centre)
    return low > limit or high < -limit or (-limit <= low and high <= limit)


def half_width(baseline: Sequence[float], candidate: Sequence[float]) -> float:
    """Half the 95 % interval's width in the logarithm of the speedup; infinite where there is none."""
    estimate = paired_speedup(baseline, candidate)
    if estimate.ci_low is None or estimate.ci_high is None:
        return math.inf
    return math.log(estimate.ci_high / estimate.ci_low) / 2


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
