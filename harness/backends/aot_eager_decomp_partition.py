"""As aot_eager, with inductor's decompositions and its min-cut partitioner: inductor without its kernels."""

from __future__ import annotations

from harness.backends.shared.dynamo import compile_with_dynamo
from harness.program import Compiled, Program


def compile(program: Program) -> Compiled:  # noqa: A001 - the name that every backend offers
    return compile_with_dynamo(program, "aot_eager_decomp_partition")
