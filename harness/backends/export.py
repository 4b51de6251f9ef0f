"""torch.export: the whole model as one graph of ATen operators, run by eager kernels. Inference only."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from harness.backends.shared import captured
from harness.program import Compiled, Program

MODES = captured.INFERENCE
why_unavailable = captured.why_unavailable


def compile(program: Program) -> Compiled:  # noqa: A001 - the name that every backend offers
    def build(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> tuple[captured.Call, int]:
        graph = captured.exported(program, program.module, args, kwargs)
        return graph.module(), captured.operations_of(graph)

    return captured.compile_at_first_call(program, "export", build)
