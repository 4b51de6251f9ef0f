"""A step of library products, which compilation does not change."""

from __future__ import annotations

from runner.analysis.digits import ms_text
from runner.runs.why.looked import LINES, Looked

NAME = "nothing to gain"
SENTENCE = "Nearly the whole step is products and convolutions of a library, which are the same in both."
LEAST = 0.9  # of eager's step, and of the compiled step
SAME = 0.1  # the change of these products, as a share of eager's


def signature(looked: Looked) -> str:
    eager, compiled = looked.balance[LINES[0]]
    steps = [sum(both[side] for both in looked.balance.values()) for side in (0, 1)]
    same = abs(compiled - eager) <= SAME * eager
    most = eager > LEAST * steps[0] and compiled > LEAST * steps[1]
    if not (most and same):
        return ""
    return f"{ms_text(eager)} of {ms_text(steps[0])} ms of eager's step are library calls"
