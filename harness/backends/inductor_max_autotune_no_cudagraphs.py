"""inductor, its kernels chosen by measurement, without CUDA graphs."""

from __future__ import annotations

from harness.backends._inductor import compile_with_inductor, why_no_inductor
from harness.program import Compiled, Program


def compile(program: Program) -> Compiled:  # noqa: A001 - the name that every backend offers
    return compile_with_inductor(
        program, "inductor_max_autotune_no_cudagraphs", mode="max-autotune-no-cudagraphs"
    )


def why_unavailable(device_type: str) -> str | None:
    return why_no_inductor(device_type)
