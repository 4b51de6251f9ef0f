"""Attention that lost, or got, a fused kernel."""

from __future__ import annotations

from runner.analysis.digits import ms_text
from runner.runs.why.looked import STEP, Looked

NAME = "attention by another kernel"
SENTENCE = "Attention is computed by another kernel than in eager."
SETTINGS = ("pattern_matcher=False",)
LEAST = 0.02  # of the step


def signature(looked: Looked) -> str:
    kernel = r"aten::_scaled_dot_product\w+"
    eager, compiled = (looked.ms(kernel, compiled=side) for side in (False, True))
    shows = max(eager, compiled) > LEAST * looked.compiled.get(STEP, 0.0) and not (eager and compiled)
    return f"fused attention {ms_text(eager)} -> {ms_text(compiled)} ms" if shows else ""
