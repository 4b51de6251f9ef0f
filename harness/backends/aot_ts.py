"""TorchScript on AOTAutograd's forward and backward graphs, split by its default partitioner."""

from __future__ import annotations

from harness.backends.shared.aot_ts import compile_aot_ts
from harness.program import Compiled, Program


def compile(program: Program) -> Compiled:  # noqa: A001 - the name that every backend offers
    return compile_aot_ts(program, "aot_ts")
