"""Comparisons whose results are stored as booleans for the backward."""

from __future__ import annotations

from runner.names import counted
from runner.runs.why.looked import Looked

NAME = "stored masks"
SENTENCE = "The comparisons of an activation are stored as booleans for the backward, which is slow on a CPU."


def signature(looked: Looked) -> str:
    kernels = [name for name in looked.kernels("mask") if "threshold_backward" in name or "hardtanh" in name]
    return f"masks of an activation, stored by {counted(len(kernels), 'kernel')}" if kernels else ""


def settings(looked: Looked) -> tuple[str, ...]:
    known = ("threshold_backward", "hardtanh_backward")
    used = [name for name in known if any(name in kernel for kernel in looked.signs)]
    return (",".join(f"decompose.{name}=False" for name in used),)


def cost(looked: Looked) -> float:
    return looked.ms_of("mask")
