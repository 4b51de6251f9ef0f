"""Averages over models: the geometric mean with two intervals, and the interval of a pass rate."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from scipy import special

from runner.analysis.estimate import Estimate, Geomean, exp
from runner.analysis.statistics import CONFIDENCE, mean_of_logs


def geomean(estimates: Sequence[Estimate]) -> Geomean:
    if not estimates:
        return Geomean()
    logs = np.log([estimate.factor for estimate in estimates])
    over = mean_of_logs(logs)
    value, low, high = (math.exp(logs[0]), None, None) if over is None else (over.factor, over.low, over.high)
    mean = Geomean(models=len(estimates), value=value, low=low, high=high)
    widths = [estimate.half_width for estimate in estimates if estimate.half_width is not None]
    if len(widths) < len(estimates):
        return mean
    # errors of single models are independent: half widths add in quadrature
    half = math.hypot(*widths) / len(widths)
    return replace(mean, these_low=value * exp(-half), these_high=value * exp(half))


def wilson(passed: int, total: int) -> tuple[float, float]:
    """The interval of a pass rate (Wilson 1927). Raises ``ValueError`` without a record."""
    if total < 1:
        raise ValueError("a pass rate needs a record")
    z, share = float(special.ndtri((1 + CONFIDENCE) / 2)), passed / total
    center = (share + z * z / (2 * total)) / (1 + z * z / total)
    half = z / (1 + z * z / total) * math.sqrt(share * (1 - share) / total + z * z / (4 * total**2))
    return max(0.0, center - half), min(1.0, center + half)
