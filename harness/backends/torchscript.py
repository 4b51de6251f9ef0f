"""TorchScript: ``torch.jit.script`` of the module, or ``torch.jit.trace`` where scripting fails.

The loss runs in eager Python, as usual with TorchScript. The executor specializes during the first calls;
therefore several calls count as compilation.
"""

from __future__ import annotations

import inspect
from typing import Any, cast

import torch

from harness.backends.shared.options import notes_on
from harness.backends.shared.torchscript import quiet, with_fuser
from harness.failures import first_line
from harness.program import Compiled, Program, forward_of


def compile(program: Program) -> Compiled:  # noqa: A001 - the name that every backend offers
    with quiet():
        scripted, note = _script_or_trace(program)
    nodes = sum(1 for _ in scripted.graph.nodes())
    forward = forward_of(scripted, program.loss if program.training else None)
    return Compiled(
        forward=with_fuser(forward, program),
        region="forward",
        compiler_calls=lambda: int(nodes > 0),
        notes=(note, *notes_on("torchscript", program.options, ("fuser",))),
    )


def _script_or_trace(program: Program) -> tuple[torch.jit.ScriptModule, str]:
    try:
        return torch.jit.script(program.module), "torchscript: scripted"
    except Exception as error:  # scripting raises many types of errors; each leads to tracing
        reason = first_line(error)
    return _trace(program), f"torchscript: traced, because scripting said: {reason}"


def _trace(program: Program) -> torch.jit.ScriptModule:
    trace: Any = torch.jit.trace
    given: dict[str, Any] = {"example_inputs": program.args}
    if program.kwargs:
        # trace takes positional or named inputs, not both, so all are passed by name
        named = inspect.signature(program.module.forward).bind(*program.args, **program.kwargs).arguments
        given = {"example_kwarg_inputs": dict(named)}
    return cast("torch.jit.ScriptModule", trace(program.module, **given, check_trace=False, strict=False))
