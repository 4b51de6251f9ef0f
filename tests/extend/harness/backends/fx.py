"""The Python that torch.fx writes for a traced module, uncompiled: shows the effect of tracing alone."""

from __future__ import annotations

import torch

from harness.backends.shared.options import notes_on
from harness.program import Compiled, Program, forward_of


def compile(program: Program) -> Compiled:  # noqa: A001 - the name that every backend offers
    traced = torch.fx.symbolic_trace(program.module)
    operations = sum(1 for node in traced.graph.nodes if node.op.startswith("call"))
    return Compiled(
        forward=forward_of(traced, program.loss if program.training else None),
        region="forward",  # the loss stays eager
        compiler_calls=lambda: operations,  # 0 is reported as not_compiled
        notes=notes_on("fx", program.options, ()),  # names ignored options
    )
