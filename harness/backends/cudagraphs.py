"""CUDA graphs round AOTAutograd's graphs, without new kernels. CUDA only."""

from __future__ import annotations

from harness.backends._dynamo import compile_with_dynamo
from harness.backends._inductor import why_no_cudagraphs
from harness.counters import counting_graphs, cudagraph_skips
from harness.program import Compiled, Program


def compile(program: Program) -> Compiled:  # noqa: A001 - the name that every backend offers
    graphs, skips = counting_graphs(), cudagraph_skips()
    each = 2 if program.training else 1  # forward and backward may be skipped, each on its own

    def calls() -> int:
        """What is skipped runs eager's kernels one by one: only the others prove anything."""
        return max(0, each * graphs() - (cudagraph_skips() - skips))

    return compile_with_dynamo(program, "cudagraphs", calls=calls)


def why_unavailable(device_type: str) -> str | None:
    return why_no_cudagraphs(device_type)
