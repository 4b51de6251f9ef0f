"""The two conclusions of study A's author, held against a run: smaller types help, and so does compiling."""

from __future__ import annotations

from harness.protocol import Protocol
from runner.analysis.digits import speedup_text
from studies.expectations import FAILS, HOLDS, OPEN, Expectation
from studies.training_time.published import HEADS
from studies.training_time.results import EAGER, Groups, paired_steps, rows

WALL_NOISE = 1.05
"""Wall times of whole runs have no interval: those that differ by a smaller factor are not told apart."""
STEP_NOISE = Protocol().noise_threshold
"""As in the runner's verdicts, an interval must lie beyond 2 %: processes differ by about as much."""
COMPILE = "compile"

Variant = tuple[str, str]  # precision, mode


def conclusions(groups: Groups) -> list[Expectation]:
    """Each conclusion for every pair of variants of the run: for the steps alone, and for whole runs."""
    precisions = list(dict.fromkeys(precision for precision, _ in groups))
    found: list[Expectation] = []
    for mode in (EAGER, COMPILE):
        for precision in (name for name in precisions if name != "float32"):
            claim = f"smaller types help: {HEADS[precision]}, {mode}"
            found += _compared(claim, groups, ("float32", mode), (precision, mode))
    for precision in precisions:
        claim = f"compiling helps: {HEADS[precision]}"
        found += _compared(claim, groups, (precision, EAGER), (precision, COMPILE))
    return found


def _compared(claim: str, groups: Groups, slow: Variant, fast: Variant) -> list[Expectation]:
    if slow not in groups or fast not in groups:
        return []
    good = [[t for t in groups[variant] if t.status == "PASS"] for variant in (slow, fast)]
    steps = paired_steps(*good)
    low, high = steps.ci or (None, None)
    verdict = OPEN
    if low is not None and high is not None:
        limit = 1 + STEP_NOISE
        verdict = HOLDS if low > limit else FAILS if high < 1 / limit else OPEN
    shown = "not both were timed" if steps.ratio is None else speedup_text(steps.ratio, low, high)
    return [
        Expectation(title="steps", expected=claim, found=shown, holds=verdict),
        _whole(claim, groups, slow, fast),
    ]


def _whole(claim: str, groups: Groups, slow: Variant, fast: Variant) -> Expectation:
    times = [row.wall_s for row in rows({variant: groups[variant] for variant in (slow, fast)})]
    if not times[0] or not times[1]:
        return Expectation(title="whole run", expected=claim, found="not both were timed", holds=OPEN)
    factor = times[0] / times[1]
    verdict = HOLDS if factor > WALL_NOISE else FAILS if factor < 1 / WALL_NOISE else OPEN
    return Expectation(title="whole run", expected=claim, found=f"{factor:.2f}x", holds=verdict)
