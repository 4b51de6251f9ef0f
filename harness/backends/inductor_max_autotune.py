"""inductor, its kernels chosen by measurement, with CUDA graphs (mode "max-autotune")."""

from __future__ import annotations

from dataclasses import replace

from harness.backends._inductor import compile_with_inductor, note_on_cpu, why_no_inductor
from harness.program import Compiled, Program


def compile(program: Program) -> Compiled:  # noqa: A001 - the name that every backend offers
    compiled = compile_with_inductor(program, "inductor_max_autotune", mode="max-autotune")
    return replace(compiled, notes=(*compiled.notes, *note_on_cpu(program, "inductor_max_autotune")))


def why_unavailable(device_type: str) -> str | None:
    return why_no_inductor(device_type)
