"""Data of a panel's charts of the work: the point on the roofline, and the phases of the compilation."""

from __future__ import annotations

from typing import Any

from harness.declared import SIDES
from harness.metrics import declared
from runner.analysis.comparison import Comparison
from runner.analysis.digits import share_text

Number = float | None


def roofline(comparison: Comparison) -> dict[str, Any] | None:
    """FLOP/byte of the step, TFLOP/s of both sides, and the two limits of the device; None if unknown."""
    number = comparison.number
    roof, intensity = number("roof_tflop_per_s"), number("flop_per_byte")
    if not comparison.n or roof is None or intensity is None:
        return None
    peak, bandwidth = number("measured_peak_tflop_per_s"), number("measured_bandwidth_gb_per_s")
    shares = [number(f"{side}share_of_roof") for side in SIDES]
    return {
        "flop_per_byte": _short(intensity),
        "eager": _short(number("baseline_tflop_per_s") if shares[0] is not None else None),
        "candidate": _short(number("candidate_tflop_per_s")),
        "roof": _short(roof),
        "shares": [None if share is None else share_text(share) for share in shares],
        "peak_flop_per_s": _short(None if peak is None else peak * 1e12),
        "bandwidth_bytes_per_s": _short(None if bandwidth is None else bandwidth * 1e9),
    }


def phases(comparison: Comparison) -> list[tuple[str, float]] | None:
    """(phase, seconds) for the phases that torch reported; None for fewer than two phases.

    A phase includes the phases after it, except the phases of the same level.
    """
    times = [
        (one.phase, float(f"{seconds:.4g}"))
        for one in declared().metrics
        if one.phase and (seconds := comparison.number(one.name)) is not None and seconds > 0
    ]
    return times if len(times) > 1 else None


def _short(value: Number) -> Number:
    return None if value is None else float(f"{value:.5g}")
