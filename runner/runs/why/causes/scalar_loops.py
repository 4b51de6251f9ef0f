"""Generated loops that are not vectorized."""

from __future__ import annotations

from runner.analysis.digits import ms_text
from runner.names import counted
from runner.runs.why.looked import STEP, Looked

NAME = "loops without vectors"
SENTENCE = "Generated loops are not vectorized."
LEAST = 0.05  # of the step


def signature(looked: Looked) -> str:
    ms, step = looked.ms_of("scalar"), looked.compiled.get(STEP, 0.0)
    kernels = counted(len(looked.kernels("scalar")), "kernel")
    return f"scalar loops in {kernels} ({ms_text(ms)} ms)" if ms > LEAST * step else ""


def settings(looked: Looked) -> tuple[str, ...]:
    narrow = any(setting.startswith("cpp.simdlen=") for setting in looked.settings)
    return ("cpp.simdlen=None",) if narrow else ()
