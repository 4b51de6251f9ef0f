"""inductor, with the backward captured whole when it runs (compiled autograd). Training only."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch

from harness.backends.shared import inductor
from harness.backends.shared.contexts import inside
from harness.program import Compiled, Program

MODES = ("training",)
SETTINGS = inductor.SETTINGS


def why_unavailable(device_type: str) -> str | None:
    try:
        from torch._dynamo.compiled_autograd import _enable  # noqa: F401 - an old torch has none
    except ImportError:
        return f"compiled autograd needs torch 2.6 or later; this is torch {torch.__version__}"
    return inductor.why_unavailable(device_type)


def compile(program: Program) -> Compiled:  # noqa: A001 - the name that every backend offers
    if not program.training:
        raise ValueError("inductor_compiled_autograd compiles the backward; inference has none")
    backwards = 0
    options = inductor.all_settings(program) or None
    dynamic = program.options.dynamic_shapes

    def compile_backward(graph: Any) -> Any:
        nonlocal backwards
        backwards += 1
        return torch.compile(
            graph, backend="inductor", dynamic=dynamic or None, fullgraph=True, options=options
        )

    def context() -> Any:
        return torch._dynamo.compiled_autograd._enable(compile_backward, dynamic=dynamic)

    compiled = inductor.compile_as(program, "inductor_compiled_autograd")
    return replace(
        inside(compiled, context),
        # without a captured backward, this is plain inductor
        compiler_calls=lambda: min(compiled.compiler_calls(), backwards),
    )
