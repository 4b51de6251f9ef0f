"""Another memory format than eager's: copies before convolutions, or a slow backward in that order."""

from __future__ import annotations

from runner.runs.why.looked import STEP, Looked

NAME = "memory format"
SENTENCE = (
    "inductor runs convolutions in another memory format than eager: it copies tensors, "
    "or convolutions are slower in that order."
)
CONVOLUTION = r"(?:aten|mkldnn)::\w*conv\w*"
GROWN = 1.05  # of eager's time
LEAST = 0.02  # of the step


def signature(looked: Looked) -> str:
    convolutions = looked.ms(CONVOLUTION) + looked.ms_of("copy")
    before = looked.ms(CONVOLUTION, compiled=False)
    return (
        f"convolutions and copies {before:.3g} -> {convolutions:.3g} ms"
        if convolutions > max(GROWN * before, before + LEAST * looked.compiled.get(STEP, 0.0))
        else ""
    )


def settings(looked: Looked) -> tuple[str, ...]:
    return ("layout_optimization=False", "force_layout_optimization=True")


def cost(looked: Looked) -> float:
    return looked.ms(CONVOLUTION) + looked.ms_of("copy") - looked.ms(CONVOLUTION, compiled=False)
