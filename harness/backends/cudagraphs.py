"""CUDA graphs of AOTAutograd's graphs, without new kernels. CUDA only."""

from __future__ import annotations

from harness.backends.shared.dynamo import compile_with_dynamo
from harness.backends.shared.inductor import why_no_cudagraphs, with_cuda_graphs
from harness.program import Compiled, Program

why_unavailable = why_no_cudagraphs


def compile(program: Program) -> Compiled:  # noqa: A001 - the name that every backend offers
    return with_cuda_graphs(program, "cudagraphs", lambda: compile_with_dynamo(program, "cudagraphs"))
