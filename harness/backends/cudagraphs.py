"""CUDA graphs round AOTAutograd's graphs, without new kernels. CUDA only."""

from __future__ import annotations

from harness.backends._dynamo import compile_with_dynamo
from harness.backends._inductor import why_no_cudagraphs
from harness.counters import counting_graphs, cudagraph_skips
from harness.program import Compiled, Program


def compile(program: Program) -> Compiled:  # noqa: A001 - the name that every backend offers
    graphs, skips = counting_graphs(), cudagraph_skips()
    # one graph that is skipped runs eager kernels as they were: only the others prove anything
    return compile_with_dynamo(program, "cudagraphs", calls=lambda: graphs() - (cudagraph_skips() - skips))


def why_unavailable(device_type: str) -> str | None:
    return why_no_cudagraphs(device_type)
