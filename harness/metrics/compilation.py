"""How long the phases of a compilation took, and how many graphs were compiled again, as torch reports it.

Phases are nested, each time holding those after it: Dynamo's capture and all
below it, AOTAutograd and below, Inductor and below, Inductor's code generation
(with its C++ or Triton compiler), that compiler alone. Seconds of wall time, the
backward graph's included, which torch may compile later than the forward's.
Absent where torch reports nothing, as for a compiler without Dynamo. ``compile_cache_saved_s`` is what
warm caches saved.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from harness import counters
from harness.schema import Scalar

WHEN = "compile"

# our name: torch's, in microseconds
PHASES = {
    "dynamo_s": "dynamo_cumulative_compile_time_us",
    "aot_autograd_s": "aot_autograd_cumulative_compile_time_us",
    "inductor_s": "inductor_cumulative_compile_time_us",
    "inductor_code_generation_s": "inductor_code_gen_cumulative_compile_time_us",
    "kernel_compiler_s": "triton_compile_time_us",
    "backward_s": "backward_cumulative_compile_time_us",
    "cudagraph_capture_s": "runtime_cudagraphify_time_us",
    "autotuning_s": "runtime_triton_autotune_time_us",
    # what the cached code took to compile when it was compiled; torch counts it under the name of what
    # it does with the sum: to lengthen the timeouts of distributed runs
    "cache_saved_s": "distributed_ephemeral_timeout_us",
}


@contextmanager
def observe(device: torch.device, numbers: dict[str, Scalar]) -> Iterator[None]:
    before = counters.compilations()
    yield
    found = counters.new_compilations(before)
    if not found:
        return
    for name, source in PHASES.items():
        numbers[f"compile_{name}"] = total_s(found, source)
    numbers["recompiles"] = sum(1 for one in found if getattr(one, "recompile_reason", None))


def total_s(compilations: Sequence[Any], name: str) -> float | None:
    """Sum of that time over the compilations that have it (s); None when none has."""
    times = [time for one in compilations if (time := getattr(one, name, None)) is not None]
    return sum(times) / 1e6 if times else None
