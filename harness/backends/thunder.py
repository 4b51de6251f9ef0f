"""Lightning Thunder: its own trace of the model, run by its executors (NVFuser among them on CUDA)."""

from __future__ import annotations

from typing import Any

from harness.backends.shared.options import notes_on
from harness.hardware.installed import why_broken, why_missing
from harness.program import Compiled, Program, forward_of

NEEDS = "lightning-thunder"


def compile(program: Program) -> Compiled:  # noqa: A001 - the name that every backend offers
    import thunder

    compiled: Any = thunder.jit(program.module)
    return Compiled(
        forward=forward_of(compiled, program.loss if program.training else None),
        region="forward",
        compiler_calls=lambda: thunder.cache_misses(compiled),
        notes=notes_on("thunder", program.options, ()),
    )


def why_unavailable(device_type: str) -> str | None:
    return why_missing(NEEDS, "thunder") or why_broken("thunder")
