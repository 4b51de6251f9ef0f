"""Times of the phases of a compilation, and the number of graphs compiled again, as torch reports them.

Phases are nested, and each time includes the phases after it: Dynamo's capture, AOTAutograd, Inductor,
Inductor's code generation, the C++ or Triton compiler. Seconds of wall time, with the backward graph, which
torch may compile later than the forward graph. Absent if torch reports nothing, for instance for a compiler
without Dynamo.

``compile_cpu_s`` is the processor time of this process and all of its descendants, from the compiler's call
to the last first call. Other processes lengthen it less than the wall time.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness import counters
from harness.declared import COMPILATION, Average, Column, Metric
from harness.schema import Scalar

if TYPE_CHECKING:
    import torch

WHEN = "compile"

# torchduet's name -> torch's name; torch's numbers are in microseconds
PHASES = {
    "dynamo_s": "dynamo_cumulative_compile_time_us",
    "aot_autograd_s": "aot_autograd_cumulative_compile_time_us",
    "inductor_s": "inductor_cumulative_compile_time_us",
    "inductor_code_generation_s": "inductor_code_gen_cumulative_compile_time_us",
    "kernel_compiler_s": "triton_compile_time_us",
    "backward_s": "backward_cumulative_compile_time_us",
    "cudagraph_capture_s": "runtime_cudagraphify_time_us",
    "autotuning_s": "runtime_triton_autotune_time_us",
    # the original compilation time of cached code; torch names it by its use, which is to lengthen the
    # timeouts of distributed runs
    "cache_saved_s": "distributed_ephemeral_timeout_us",
}


def _phase(name: str, meaning: str, phase: str = "") -> Metric:
    return Metric(name, "s", meaning, group=COMPILATION, phase=phase)


METRICS = (
    Metric(
        "compilation_latency_s",
        "s",
        "the compiler's call and the first calls, less as many settled eager steps",
        group=COMPILATION,
        columns=(Column("compile", "compile\ns", starred_by="prepared_beside"),),
        average=Average(
            heading="compilation",
            key="compilation",
        ),
        phase="in all, with first calls",
    ),
    Metric(
        "compile_cpu_s",
        "s",
        "processor time of the compiler's call and the first calls, over all processes and threads",
        group=COMPILATION,
        phase="in all, processor time",
    ),
    Metric(
        "cold_compilation_latency_s",
        "s",
        "compilation_latency_s with empty compile caches (--cold-start, --warm-start)",
    ),
    Metric(
        "warm_compilation_latency_s",
        "s",
        "compilation_latency_s with caches that the cold start has filled (--warm-start)",
    ),
    Metric(
        "later_compilation_latency_s",
        "s",
        "mean compilation_latency_s of the processes after the first (--processes)",
    ),
    Metric(
        "later_compile_cache_hits",
        "",
        "hits of inductor's caches in these processes: what an earlier process compiled is used again",
    ),
    Metric("later_compile_cache_misses", "", "misses of inductor's caches in these processes"),
    Metric("compiled_region", "text", "forward+loss, forward, submodules or none", group=COMPILATION),
    _phase("compile_dynamo_s", "Dynamo's capture and all phases below it", "Dynamo and all below"),
    _phase("compile_aot_autograd_s", "AOTAutograd and all phases below it", "AOTAutograd and below"),
    _phase("compile_inductor_s", "inductor and all phases below it", "Inductor and below"),
    _phase(
        "compile_inductor_code_generation_s",
        "inductor's code generation, with its compiler",
        "code generation",
    ),
    _phase("compile_kernel_compiler_s", "the C++ or Triton compiler", "C++ or Triton compiler"),
    _phase("compile_backward_s", "the backward graph's part of these times", "of these, the backward"),
    _phase("compile_autotuning_s", "autotuning: the choice of kernels by measuring them", "autotuning"),
    _phase("compile_cudagraph_capture_s", "the capture of CUDA graphs", "CUDA graph capture"),
    _phase("compile_cache_saved_s", "compilation time that warm caches saved"),
    Metric("recompiles", "", "graphs that were compiled again during the first calls", group=COMPILATION),
)


@contextmanager
def observe(device: torch.device, numbers: dict[str, Scalar]) -> Iterator[None]:
    before, cpu_s = counters.compilations(), processor_s()
    yield
    numbers["compile_cpu_s"] = processor_s() - cpu_s
    found = counters.new_compilations(before)
    if not found:
        return
    for name, source in PHASES.items():
        numbers[f"compile_{name}"] = total_s(found, source)
    numbers["recompiles"] = sum(map(counters.compiled_again, found))


def total_s(compilations: Sequence[Any], name: str) -> float | None:
    """Sum (s) of torch's number ``name`` over the compilations that have it; None if none has it."""
    times = [time for one in compilations if (time := getattr(one, name, None)) is not None]
    return sum(times) / 1e6 if times else None


def processor_s() -> float:
    """Processor time (s) of this process and all of its descendants, with those that have been reaped.

    Linux. Elsewhere without the descendants that still run.
    """
    times: dict[int, int] = {}
    children: dict[int, list[int]] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            fields = (folder / "stat").read_bytes().rpartition(b")")[2].split()
        except OSError:
            continue  # the process has ended
        times[int(folder.name)] = sum(map(int, fields[11:15]))  # proc(5): utime, stime, cutime, cstime
        children.setdefault(int(fields[1]), []).append(int(folder.name))
    family = [os.getpid()]
    for pid in family:
        family += children.get(pid, ())
    if family[0] not in times:
        return sum(os.times()[:4])
    return sum(times.get(pid, 0) for pid in family) / float(os.sysconf("SC_CLK_TCK"))
