"""Frozen weights whose packed kernels are slow."""

from __future__ import annotations

from runner.runs.why.looked import Looked

NAME = "freezing"
SENTENCE = "Freezing chose slower kernels for packed weights."
SETTINGS = ("freezing=False",)
ON = ("freezing=true", "freezing=1")


def signature(looked: Looked) -> str:
    options = looked.record.job.options
    given = (*options.inductor_config, *looked.settings)
    frozen = options.freezing or any(setting.lower() in ON for setting in given)
    return "freezing is on" if frozen else ""
