"""Another memory format than eager's: copies before convolutions, or slow kernels in that order."""

from __future__ import annotations

from runner.analysis.digits import ms_text
from runner.runs.why.looked import STEP, Looked

NAME = "memory format"
SENTENCE = (
    "inductor runs convolutions in another memory format than eager: it copies tensors, "
    "or convolutions or the kernels beside them are slower in that order."
)
SETTINGS = ("layout_optimization=False", "force_layout_optimization=True")
CONVOLUTION = r"(?:aten|mkldnn)::\w*conv\w*"
GROWN = 1.05  # of eager's time
LEAST = 0.02  # of the step
LONG = 0.1  # of the step: a single kernel, whose loops follow the format


def signature(looked: Looked) -> str:
    convolutions = looked.ms(CONVOLUTION) + looked.ms_of("copy")
    before = looked.ms(CONVOLUTION, compiled=False)
    step = looked.compiled.get(STEP, 0.0)
    if before and convolutions > max(GROWN * before, before + LEAST * step):
        return f"convolutions and copies {ms_text(before)} -> {ms_text(convolutions)} ms"
    ms = _longest_ms(looked)
    return f"beside convolutions, a single kernel takes {ms_text(ms)} ms" if ms > LONG * step else ""


def cost(looked: Looked) -> float:
    before = looked.ms(CONVOLUTION, compiled=False)
    grown = looked.ms(CONVOLUTION) + looked.ms_of("copy") - before
    return max(grown if before else 0.0, _longest_ms(looked))


def _longest_ms(looked: Looked) -> float:
    """ms of the longest generated kernel; 0 without convolutions."""
    return max((ms for _, ms, *_ in looked.kernel_rows), default=0.0) if looked.ms(CONVOLUTION) else 0.0
