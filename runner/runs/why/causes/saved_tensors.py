"""Tensors that are saved for the backward, or recomputed in it."""

from __future__ import annotations

from harness.schema import Mode
from runner.runs.why.looked import Looked

NAME = "saved tensors"
SENTENCE = "The partition saves or recomputes too much for the backward."
SETTINGS = ("functorch.activation_memory_budget=0.5",)
GROWN = 1.1


def signature(looked: Looked) -> str:
    training = looked.record.job.case.mode is Mode.TRAINING
    ratio = looked.number("candidate_peak_memory_bytes") / (looked.number("baseline_peak_memory_bytes") or 1)
    return f"the compiled step needs {ratio:.2f} times eager's memory" if training and ratio > GROWN else ""
