"""The code around a compiled graph, which runs in each call."""

from __future__ import annotations

from runner.analysis.digits import ms_text
from runner.runs.why.looked import LINES, STEP, Looked

NAME = "wrapper of the call"
SENTENCE = "Each call runs guards and Python code around the graph, which take long beside such a short step."
LEAST = 0.1  # of the compiled step


def signature(looked: Looked) -> str:
    ms = looked.balance[LINES[6]][1]
    step_ms = looked.compiled.get(STEP, 0.0)
    shows = ms > LEAST * step_ms
    return f"{ms_text(ms)} of {ms_text(step_ms)} ms are guards and wrapper" if shows else ""
