"""Guards that are checked before each call."""

from __future__ import annotations

from runner.analysis.digits import significant
from runner.runs.why.looked import Looked

NAME = "guards"
SENTENCE = "Dynamo checks its guards before each call, which takes long beside such a short step."
METRIC = "guards_us"
LEAST = 0.02  # of the step


def signature(looked: Looked) -> str:
    us, surely = (looked.number(f"candidate_{METRIC}{end}") for end in ("", "_low"))
    shows = surely / 1e3 > LEAST * looked.step_ms
    return f"{looked.number('guards'):g} guards take {significant(us, 3)} us" if shows else ""
