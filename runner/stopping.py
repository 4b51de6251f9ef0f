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
from runner.statistics import PairedEstimate, paired_speedup

Columns = tuple[Sequence[float], Sequence[float]]
"""(baseline seconds, candidate seconds), round by round."""

Pairs = Mapping[str, Columns]
"""The columns of each candidate."""

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
    now = {name: paired_speedup(*columns) for name, columns in pairs.items()}
    wanting = [one for name, one in now.items() if not _enough(one, pairs[name], protocol)]
    closed = allowance_s is None or all(_verdict_stands(one, protocol, CLOSED) for one in now.values())
    if not wanting and closed:
        return Decision(rounds=0, reason="precise")
    time_s = protocol.max_measure_s if allowance_s is None else allowance_s
    affordable = _affordable(done, elapsed_s, time_s)
    if affordable < 1:
        return Decision(rounds=0, reason="out of time")
    needed = max((_needed(one, protocol.precision) for one in wanting), default=math.inf)
    batch = LARGEST_BATCH
    if math.isfinite(needed):
        batch = min(LARGEST_BATCH, max(SMALLEST_BATCH, math.ceil((needed - done) / 2)))
    return Decision(
        rounds=min(batch, affordable, most - done),
        reason="not yet precise" if wanting else "verdict open",
        within_s=time_s - elapsed_s,
    )


def _enough(now: PairedEstimate, columns: Columns, protocol: Protocol) -> bool:
    """Narrow, or clear of every verdict's limits; now, and already without the last few rounds."""
    earlier = now.n - SMALLEST_BATCH
    if earlier < 1 or not _will_do(now, protocol):
        return False
    return _will_do(paired_speedup(*(column[:earlier] for column in columns)), protocol)


def _will_do(found: PairedEstimate, protocol: Protocol) -> bool:
    width = found.half_width
    if width is None:
        return False
    if width <= math.log1p(protocol.precision):
        return True
    return width <= math.log1p(WIDEST * protocol.precision) and _verdict_stands(found, protocol, CLEAR)


def _verdict_stands(found: PairedEstimate, protocol: Protocol, stretch: float) -> bool:
    """Whether the interval, stretched round its estimate, is wholly beyond a limit of "same" or inside."""
    if found.ci_low is None or found.ci_high is None:
        return False
    centre, limit = math.log(found.speedup), math.log1p(protocol.noise_threshold)
    low = centre - stretch * (centre - math.log(found.ci_low))
    high = centre + stretch * (math.log(found.ci_high) - centre)
    return low > limit or high < -limit or (-limit <= low and high <= limit)


def _needed(found: PairedEstimate, precision: float) -> float:
    """Rounds for the interval to be narrow, as its width falls with the square root of their number."""
    if found.half_width is None:
        return found.n + LARGEST_BATCH
    return found.n * (found.half_width / math.log1p(precision)) ** 2


def _affordable(done: int, elapsed_s: float, budget_s: float) -> int:
    if elapsed_s <= 0 or done == 0:
        return LARGEST_BATCH
    return math.floor((budget_s - elapsed_s) / (elapsed_s / done))
