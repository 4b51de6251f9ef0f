"""Findings about noise: what disturbed the rounds, where it was enough to matter."""

from __future__ import annotations

import math
from collections.abc import Callable

from runner.comparison import Comparison, Found

MOST_STOLEN = 0.01  # share of all CPU time; a steal of 1 % can be all of one round
MOST_THROTTLED = 0.01
MOST_SWITCHES_PER_S = 100.0
LEAST_CV = 0.1  # below, the switches did no harm worth a line
FEWEST_FOR_LAG = 20
LEAST_LAG = 0.3
CLOCK_SPREAD = 0.05
HARMLESS = ("set application clocks",)  # somebody fixed the clock: that makes it steady


def _dependent_rounds(comparison: Comparison) -> Found | None:
    noise = comparison.noise
    if noise is None or noise.lag_1 is None or comparison.n < FEWEST_FOR_LAG:
        return None
    # independent rounds stay within 3 standard errors, about 3 / sqrt(n)
    if noise.lag_1 <= max(LEAST_LAG, 3 / math.sqrt(comparison.n)):
        return None
    worth = comparison.n * (1 - noise.lag_1) / (1 + noise.lag_1)
    text = f"lag-1 autocorrelation {noise.lag_1:.2f}; {comparison.n} rounds are worth about {worth:.0f}"
    advice = (
        "The interval takes rounds for independent and is too narrow here: something drifted while they ran. "
        "Run it again, at another time or on a quieter machine, before you trust it."
    )
    return "Rounds that depend on each other", text, advice


def _stolen(comparison: Comparison) -> Found | None:
    share = comparison.noise.stolen_share if comparison.noise is not None else None
    if share is None or share <= MOST_STOLEN:
        return None
    text = f"{share:.1%} of the CPU time during the rounds"
    return "CPU time stolen by other virtual machines", text, "The host is shared: use a dedicated one."


def _throttled(comparison: Comparison) -> Found | None:
    share = comparison.noise.throttled_share if comparison.noise is not None else None
    if share is None or share <= MOST_THROTTLED:
        return None
    advice = "More threads run than the quota allows: lower --threads to the quota, or raise the quota."
    return "Stopped by a CPU quota", f"{share:.1%} of the time of the rounds", advice


def _crowded(comparison: Comparison) -> Found | None:
    noise = comparison.noise
    if noise is None or noise.involuntary_switches_per_s is None or noise.baseline_cv is None:
        return None
    if noise.involuntary_switches_per_s <= MOST_SWITCHES_PER_S or noise.baseline_cv <= LEAST_CV:
        return None
    text = (
        f"{noise.involuntary_switches_per_s:.0f} involuntary context switches a second, eager's times vary "
        f"by {noise.baseline_cv:.0%}"
    )
    advice = "Other work took the CPU amid samples: end it, or lower --threads to leave a CPU free."
    return "Other work on the same CPUs", text, advice


def _gpu_held_back(comparison: Comparison) -> Found | None:
    noise = comparison.noise
    if noise is None or noise.gpu_throttle_reasons is None:
        return None
    low, high = noise.gpu_clock_min_mhz, noise.gpu_clock_max_mhz
    reasons = [r for r in noise.gpu_throttle_reasons.split("; ") if r and r not in HARMLESS]
    steady = low is None or high is None or low >= (1 - CLOCK_SPREAD) * high
    if steady or not reasons:
        return None
    text = f"clock {low:.0f} to {high:.0f} MHz ({', '.join(reasons)})"
    advice = "The clock moved while rounds ran: fix it (nvidia-smi -lgc), or let the device cool down."
    return "The GPU's clock was held back", text, advice


NOISE_RULES: tuple[Callable[[Comparison], Found | None], ...] = (
    _dependent_rounds,
    _stolen,
    _throttled,
    _crowded,
    _gpu_held_back,
)
