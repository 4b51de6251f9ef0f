"""torch.export: the whole model as one graph of ATen operators, run by eager kernels. Inference only."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from harness.backends.shared.captured import INFERENCE, Call, compile_at_first_call, exported, operations_of
from harness.program import Compiled, Program

MODES = INFERENCE


def compile(program: Program) -> Compiled:  # noqa: A001 - the name that every backend offers
    def build(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> tuple[Call, int]:
        captured = exported(program, program.module, args, kwargs)
        return captured.module(), operations_of(captured)

    return compile_at_first_call(program, "export", build)
