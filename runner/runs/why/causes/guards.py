"""Guards that are checked before each call."""

from __future__ import annotations

from runner.runs.why.looked import STEP, Looked

NAME = "guards"
SENTENCE = "Dynamo checks its guards before each call, which takes long beside such a short step."
LEAST = 0.02  # of the step


def signature(looked: Looked) -> str:
    us, step = looked.number("guard_check_us"), looked.compiled.get(STEP, 0.0)
    return f"{looked.number('guards'):g} guards take {us:.3g} us" if us / 1e3 > LEAST * step else ""
