"""Frozen weights whose packed kernels are slow."""

from __future__ import annotations

from runner.runs.why.looked import Looked

NAME = "freezing"
SENTENCE = "Freezing chose slower kernels for packed weights."


def signature(looked: Looked) -> str:
    frozen = "freezing=True" in looked.settings or looked.record.job.options.freezing
    return "freezing is on" if frozen else ""


def settings(looked: Looked) -> tuple[str, ...]:
    return ("freezing=False",)
