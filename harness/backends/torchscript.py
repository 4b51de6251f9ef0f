"""TorchScript: ``torch.jit.script`` of the module, or ``torch.jit.trace`` where scripting fails.

The loss stays in eager Python, as TorchScript users have it. The executor
specialises during the first calls, which is why several of them count as
compilation.
"""

from __future__ import annotations

import inspect
import warnings
from typing import Any, cast

import torch

from harness.program import Compiled, Program, forward_of


def compile(program: Program) -> Compiled:  # noqa: A001 - the name that every backend offers
    with warnings.catch_warnings():
        # deprecated in favour of torch.export; measuring it is the point here
        warnings.simplefilter("ignore")
        scripted, note = _script_or_trace(program)
    nodes = sum(1 for _ in scripted.graph.nodes())
    return Compiled(
        forward=forward_of(scripted, program.loss if program.training else None),
        region="forward",
        compiler_calls=lambda: int(nodes > 0),
        notes=(note,),
    )


def _script_or_trace(program: Program) -> tuple[torch.jit.ScriptModule, str]:
    try:
        return torch.jit.script(program.module), "torchscript: scripted"
    except Exception as error:  # scripting refuses in many ways: tracing is the answer to all
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
    return _trace(program), f"torchscript: traced, because scripting said: {reason[:200]}"


def _trace(program: Program) -> torch.jit.ScriptModule:
    trace: Any = torch.jit.trace
    if not program.kwargs:
        return cast(
            "torch.jit.ScriptModule", trace(program.module, program.args, check_trace=False, strict=False)
        )
    # trace takes one or the other: by name, positional inputs can go along
    named = inspect.signature(program.module.forward).bind(*program.args, **program.kwargs).arguments
    return cast(
        "torch.jit.ScriptModule",
        trace(program.module, example_kwarg_inputs=dict(named), check_trace=False, strict=False),
    )
