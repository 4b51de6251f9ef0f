"""The reasons why measuring ended, as records keep them in ``rounds_ended``."""

from __future__ import annotations

FIXED_COUNT = "fixed count"
PRECISE = "precise"
CLEAR_VERDICT = "clear verdict"
MOST_ROUNDS = "most rounds"
OUT_OF_TIME = "out of time"
STOPPED = "stopped"
NEEDS_PROCESSES = "needs processes"

CLEAR = 3.0  # a verdict is clear if it still holds with the interval widened so many times
