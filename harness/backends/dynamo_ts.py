"""TorchScript on the graphs that Dynamo captured, with TorchScript's own autodiff."""

from __future__ import annotations

from dataclasses import replace

from harness.backends.shared.dynamo import compile_with_dynamo
from harness.backends.shared.options import DYNAMO
from harness.backends.shared.torchscript import GraphScripter, with_fuser
from harness.program import Compiled, Program


def compile(program: Program) -> Compiled:  # noqa: A001 - the name that every backend offers
    scripter = GraphScripter("dynamo_ts")
    takes = (*DYNAMO, "fuser")
    compiled = compile_with_dynamo(
        program, scripter.script, name="dynamo_ts", takes=takes, calls=scripter.calls
    )
    return replace(compiled, forward=with_fuser(compiled.forward, program), late_notes=scripter.notes)
