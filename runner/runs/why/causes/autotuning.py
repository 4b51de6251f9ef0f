"""Kernels that autotuning chose."""

from __future__ import annotations

from runner.runs.why.looked import Looked

NAME = "autotuning"
SENTENCE = "Autotuning chose slower kernels."
SETTINGS = ("max_autotune=False,coordinate_descent_tuning=False",)
ON = ("max_autotune=true", "max_autotune=1", "mode=max")


def signature(looked: Looked) -> str:
    given = (*looked.record.job.options.inductor_config, *looked.settings)
    asked = [setting for setting in given if setting.lower().startswith(ON)]
    shows = asked or "autotune" in looked.compiler
    return f"autotuning is on ({', '.join(asked) or looked.compiler})" if shows else ""
