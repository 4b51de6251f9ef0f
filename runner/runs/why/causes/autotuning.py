"""Kernels that autotuning chose."""

from __future__ import annotations

from runner.runs.why.looked import Looked

NAME = "autotuning"
SENTENCE = "Autotuning chose slower kernels."


def signature(looked: Looked) -> str:
    asked = [setting for setting in looked.settings if setting.startswith(("max_autotune=", "mode=max"))]
    return (
        f"autotuning is on ({', '.join(asked) or looked.compiler})"
        if asked or "autotune" in looked.compiler
        else ""
    )


def settings(looked: Looked) -> tuple[str, ...]:
    return ("max_autotune=False,coordinate_descent_tuning=False",)
