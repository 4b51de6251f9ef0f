"""Dynamo's capture alone: its graphs run by eager kernels, without AOTAutograd."""

from __future__ import annotations

from harness.backends.shared.dynamo import compile_with_dynamo
from harness.program import Compiled, Program


def compile(program: Program) -> Compiled:  # noqa: A001 - the name that every backend offers
    return compile_with_dynamo(program, "eager", name="dynamo_eager")
