"""Why a verdict is open: the condition that failed, and what would probably close it."""

from __future__ import annotations

import math

from runner.analysis.estimate import MOST_NAMED, Estimate, Limits, OfRounds, Open, Reason, Verdict
from runner.analysis.verdicts.between import LEAST_ACROSS
from runner.analysis.verdicts.decision import OPEN, needed, pairs_needed, rounds_can_close, verdict

UNSTEADY = f"a quieter machine, or --processes={LEAST_ACROSS} and more"
CLOSES = {
    Reason.TOO_FEW_ROUNDS: "6 rounds or more: fewer have no interval",
    Reason.SIDES: f"{LEAST_ACROSS} processes of each side (--processes={LEAST_ACROSS})",
    Reason.TREND: UNSTEADY,
    Reason.HALVES: UNSTEADY,
    Reason.REGIMES: UNSTEADY,
    Reason.FAMILY: "more rounds: the interval is clear, but q counts all comparisons of the run",
    Reason.RUNS: "more runs of the base",
}


def judgment(
    estimate: Estimate | None, q_value: float | None, limits: Limits, *, across: bool = False
) -> tuple[Verdict | None, Open | None]:
    """The verdict and why it is open; None for a closed verdict.

    ``across``: the sides are in processes of their own. The verdict is then open below ``LEAST_ACROSS``.
    """
    if q_value is None and estimate is not None:
        q_value = estimate.p_value  # of a candidate that failed: it has no q, and its verdict is in brackets
    few = across and estimate is not None and estimate.processes < LEAST_ACROSS
    word = Verdict.INCONCLUSIVE if few else verdict(estimate, q_value, limits)
    if estimate is None or word not in OPEN:
        return word, None
    if not isinstance(estimate, OfRounds):  # of few pairs of compilations
        count = pairs_needed(estimate, q_value or 1.0, limits)
        closes = f"about {count} of each" if count else f"over {MOST_NAMED} of each"
        return word, Open(reason=Reason.ROUNDS, closes=closes, pairs=count)
    reason = _reason(estimate, limits, across=across)
    return word, Open(reason=reason, closes=CLOSES.get(reason) or _needed(estimate, limits))


def _reason(estimate: OfRounds, limits: Limits, *, across: bool) -> Reason:
    if across and estimate.processes < LEAST_ACROSS:
        return Reason.SIDES
    if estimate.interval is None or (estimate.rounds_half is None and estimate.processes < 2):
        return Reason.TOO_FEW_ROUNDS
    if estimate.unsteady_kind is not None:
        return estimate.unsteady_kind
    low, high = estimate.interval
    if low > limits.log or high < -limits.log:
        beyond = all(abs(log) > limits.log and log * low > 0 for log in estimate.segments)
        return Reason.FAMILY if beyond else Reason.HALVES
    if estimate.runs:
        return Reason.RUNS
    single = estimate.processes == 1
    return Reason.ROUNDS if single and rounds_can_close(estimate, limits) else Reason.PROCESSES


def _rounded_up(count: int) -> int:
    """To two digits."""
    unit: int = 10 ** max(0, len(str(count)) - 2)
    return math.ceil(count / unit) * unit


def _needed(estimate: OfRounds, limits: Limits) -> str:
    missing = needed(estimate, limits)
    assert missing is not None  # there is an interval
    ways = [f"about {_rounded_up(missing.rounds):,} rounds"] if missing.rounds else []
    ways += [f"about {missing.processes} processes"] if missing.processes else []
    return " or ".join(ways) or f"more than {MOST_NAMED} processes"
