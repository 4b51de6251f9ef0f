"""TorchScript: ``torch.jit.script`` of the module, or ``torch.jit.trace`` where scripting fails.

The loss stays in eager Python, as TorchScript users have it. The executor
specialises during the first calls, which is why several of them count as
compilation.
"""

from __future__ import annotations

import warnings

import torch

from harness.program import Compiled, Program, forward_of


def compile(program: Program) -> Compiled:
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
    kwargs = dict(program.kwargs)
    if kwargs:
        traced = torch.jit.trace(
            program.module, example_kwarg_inputs={**kwargs}, example_inputs=None, check_trace=False, strict=False
        )
    else:
        traced = torch.jit.trace(program.module, program.args, check_trace=False, strict=False)
    return traced, f"torchscript: traced, because scripting said: {reason[:200]}"
