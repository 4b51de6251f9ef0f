"""Dynamo's capture and AOTAutograd's graphs, run by eager kernels: the cost and parity of capture alone."""

from __future__ import annotations

from harness.backends.shared.dynamo import compile_with_dynamo
from harness.program import Compiled, Program


def compile(program: Program) -> Compiled:  # noqa: A001 - the name that every backend offers
    return compile_with_dynamo(program, "aot_eager")
