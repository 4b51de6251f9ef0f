"""Weights that are copied into another order in every step."""

from __future__ import annotations

from harness.schema import Mode
from runner.runs.why.looked import Looked

NAME = "weights copied in every step"
SENTENCE = "Weights are copied into another order in every step."


def signature(looked: Looked) -> str:
    copies = looked.kernels("copy")
    inference = looked.record.job.case.mode is not Mode.TRAINING
    ms = looked.ms_of("copy")
    return f"{len(copies)} kernels only copy ({ms:.3g} ms)" if inference and copies and ms else ""


def settings(looked: Looked) -> tuple[str, ...]:
    return ("freezing=True",)


def cost(looked: Looked) -> float:
    return looked.ms_of("copy")
