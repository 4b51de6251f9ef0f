"""torchao: weights as int8, then inductor. Approximate; inference only."""

from __future__ import annotations

from harness.backends._torchao import compile_quantised, why_no_torchao
from harness.program import Compiled, Program

MODES = ("inference",)


def compile(program: Program) -> Compiled:  # noqa: A001 - the name that every backend offers
    return compile_quantised(program, "torchao_int8_weight_only", "Int8WeightOnlyConfig")


def why_unavailable(device_type: str) -> str | None:
    return why_no_torchao(device_type)
