"""The A/A control: the eager step again, on its own copy of the model. Its speedup should be 1.00x."""

from __future__ import annotations

from harness.program import Compiled, Program


def compile(program: Program) -> Compiled:  # noqa: A001 - the name that every backend offers
    return Compiled(forward=program.forward(), region="none", compiler_calls=lambda: 0, control=True)
