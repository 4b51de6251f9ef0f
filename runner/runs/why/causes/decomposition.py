"""An operator that inductor decomposes, although eager has a kernel for it."""

from __future__ import annotations

from runner.analysis.digits import ms_text
from runner.runs.why.looked import STEP, Looked

NAME = "a decomposed operator"
SENTENCE = "inductor decomposes an operator for which eager has a kernel of its own."
OPERATORS = (
    *("grid_sampler_2d", "_softmax", "native_layer_norm", "native_group_norm", "native_batch_norm"),
    *("embedding_dense_backward", "index_add", "_log_softmax", "native_layer_norm_backward"),
)
"""Of others, such as ``upsample_bilinear2d``, torch captures the parts: no setting keeps their kernel."""
FUSED = r"aten::_scaled_dot_product\w+"
LEAST = 0.05  # of eager's step


def signature(looked: Looked) -> str:
    lost = _lost(looked)
    ms = sum(looked.ms(f"aten::{name}", compiled=False) for name in lost)
    least = LEAST * looked.eager.get(STEP, 0.0)
    return f"{', '.join(lost)} ({ms_text(ms)} ms in eager) is decomposed" if ms > least else ""


def settings(looked: Looked) -> tuple[str, ...]:
    return (",".join(f"decompose.{name}=False" for name in _lost(looked)),)


def _lost(looked: Looked) -> tuple[str, ...]:
    """The operators that only eager has, but for the softmax of attention that was fused."""
    fused = looked.ms(FUSED) > looked.ms(FUSED, compiled=False) == 0
    lost = (
        name
        for name in OPERATORS
        if looked.ms(f"aten::{name}", compiled=False) > looked.ms(f"aten::{name}") == 0
    )
    return tuple(name for name in lost if not (fused and name == "_softmax"))
