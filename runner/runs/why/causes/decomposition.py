"""An operator that inductor decomposes, although eager has a kernel for it."""

from __future__ import annotations

from types import MappingProxyType

from runner.analysis.digits import ms_text
from runner.runs.why.looked import STEP, Looked

NAME = "a decomposed operator"
SENTENCE = "inductor decomposes an operator for which eager has a kernel of its own."
OPERATORS = MappingProxyType(
    {
        **{
            name: (name,)
            for name in (
                *("grid_sampler_2d", "_softmax", "_log_softmax", "index_add", "embedding_dense_backward"),
                *("native_layer_norm", "native_layer_norm_backward", "native_group_norm"),
                "native_batch_norm_backward",
            )
        },
        "native_batch_norm": ("_native_batch_norm_legit_functional", "_native_batch_norm_legit_no_training"),
    }
)
"""Eager's operator -> the operators of the captured graph that keep its kernel.

Of others, such as ``upsample_bilinear2d``, torch captures the parts already: no setting keeps their kernel.
"""
LEAST = 0.05  # of eager's step


def signature(looked: Looked) -> str:
    lost = tuple(looked.lost(*OPERATORS))
    ms = sum(looked.ms(f"aten::{name}", compiled=False) for name in lost)
    least = LEAST * looked.eager.get(STEP, 0.0)
    return f"{', '.join(lost)} ({ms_text(ms)} ms in eager) is decomposed" if ms > least else ""


def settings(looked: Looked) -> tuple[str, ...]:
    kept = (name for operator in looked.lost(*OPERATORS) for name in OPERATORS[operator])
    return (",".join(f"decompose.{name}=False" for name in kept),)
