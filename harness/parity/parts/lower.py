"""Whether a candidate in full precision has the errors of a lower one."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

from harness.parity.reference import Rule
from harness.schema import TensorError

LOWER = 100.0  # multiple of eager's error: more is another precision, or a fault
PRECISIONS = ((1.5e-3, "TF32 or float16"), (1.5e-2, "bfloat16"))  # largest usual error of a sum of products


def lower_precision(errors: Sequence[TensorError], rule: Rule) -> str:
    """The precision whose errors a failing candidate has, if it is lower than eager's; else ""."""
    if rule.reduced or rule.name != "scaled" or all(error.failure is None for error in errors):
        return ""
    sure = [error for error in errors if error.scale > 0.0 and math.isfinite(error.candidate_rmse)]
    if not sure:
        return ""
    ours, theirs = (
        statistics.median(getattr(error, side) / error.scale for error in sure)
        for side in ("candidate_rmse", "eager_rmse")
    )
    if ours <= LOWER * max(theirs, rule.unit / 2):
        return ""
    return next((name for most, name in PRECISIONS if ours <= most), "")
