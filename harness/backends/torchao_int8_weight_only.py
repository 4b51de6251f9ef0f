"""torchao: weights as int8, then inductor. Approximate; inference only."""

from __future__ import annotations

from harness.backends.shared.torchao import compile_quantized, why_no_torchao
from harness.program import Compiled, Program

MODES = ("inference",)
why_unavailable = why_no_torchao


def compile(program: Program) -> Compiled:  # noqa: A001 - the name that every backend offers
    return compile_quantized(program, "torchao_int8_weight_only", "Int8WeightOnlyConfig")
