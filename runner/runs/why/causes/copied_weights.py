"""Weights that are copied into another order in every step."""

from __future__ import annotations

from harness.schema import Mode
from runner.analysis.digits import ms_text
from runner.names import counted
from runner.runs.why.looked import Looked

NAME = "weights copied in every step"
SENTENCE = "Weights are copied into another order in every step."
SETTINGS = ("freezing=True",)


def signature(looked: Looked) -> str:
    ms = looked.ms_of("copy")
    if looked.record.job.case.mode is Mode.TRAINING or not ms:
        return ""
    return f"copies alone in {counted(len(looked.kernels('copy')), 'kernel')} ({ms_text(ms)} ms)"


def cost(looked: Looked) -> float:
    return looked.ms_of("copy")
