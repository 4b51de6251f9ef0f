"""The code around a compiled graph, which runs in each call."""

from __future__ import annotations

from runner.runs.why.looked import LINES, STEP, Looked

NAME = "wrapper of the call"
SENTENCE = "Each call runs guards and Python code around the graph, which take long beside such a short step."
LEAST = 0.1  # of the compiled step


def signature(looked: Looked) -> str:
    ms = looked.balance[LINES[6]][1]
    step_ms = looked.compiled.get(STEP, 0.0)
    return f"{ms:.2g} of {step_ms:.3g} ms are guards and wrapper" if ms > LEAST * step_ms else ""
