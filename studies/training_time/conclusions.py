"""The two conclusions of study A's author, held against a run: smaller types help, and so does compiling."""

from __future__ import annotations

from collections.abc import Iterator

from harness.protocol import Protocol
from runner.analysis.digits import speedup_text
from studies.expectations import FAILS, HOLDS, OPEN, Expectation
from studies.training_time.published import HEADS
from studies.training_time.results import EAGER, Results, paired

WALL_NOISE = 1.05
"""Wall times of whole runs have no interval: those that differ by a smaller factor are not told apart."""
STEP_NOISE = Protocol().noise_threshold
"""As in the runner's verdicts, an interval must lie beyond 2 %: processes differ by about as much."""
COMPILE = "compile"
UNTIMED = "not both were timed"


def conclusions(results: Results) -> list[Expectation]:
    """Each conclusion for every pair of variants of the run: for the steps alone, and for whole runs."""
    precisions = list(dict.fromkeys(row.precision for row in results.rows.values()))
    claims = [
        (f"smaller types help: {HEADS[name]}, {mode}", f"float32 {mode}", f"{name} {mode}")
        for mode in (EAGER, COMPILE)
        for name in precisions
        if name != "float32"
    ]
    claims += [
        (f"compiling helps: {HEADS[name]}", f"{name} {EAGER}", f"{name} {COMPILE}") for name in precisions
    ]
    return [
        expectation
        for claim, slow, fast in claims
        if slow in results.rows and fast in results.rows
        for expectation in _compared(claim, results, slow, fast)
    ]


def _compared(claim: str, results: Results, slow: str, fast: str) -> Iterator[Expectation]:
    steps = paired(results.chunks, slow, fast)
    low, high = (steps.ci_low, steps.ci_high) if steps else (None, None)
    text = speedup_text(steps.speedup, low, high) if steps else UNTIMED
    yield Expectation(title="steps", expected=claim, found=text, holds=_holds(low, high, 1 + STEP_NOISE))
    times = [results.rows[name].wall_s for name in (slow, fast)]
    factor = times[0] / times[1] if times[0] and times[1] else None
    text = UNTIMED if factor is None else f"{factor:.2f}x"
    yield Expectation(title="whole run", expected=claim, found=text, holds=_holds(factor, factor, WALL_NOISE))


def _holds(low: float | None, high: float | None, limit: float) -> str:
    if low is None or high is None:
        return OPEN
    return HOLDS if low > limit else FAILS if high < 1 / limit else OPEN
