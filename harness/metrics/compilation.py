"""Compilation: its time by phase, Dynamo's counts, the memory of CUDA graphs; and what the session records.

Phases are nested, and each time includes the phases after it: Dynamo's capture, AOTAutograd, Inductor,
Inductor's code generation, the C++ or Triton compiler. Seconds of wall time, with the backward graph, which
torch may compile later than the forward graph. Absent if torch reports nothing, for instance for a compiler
without Dynamo.

``compile_cpu_s`` is the processor time of this process and all of its descendants, from the compiler's call
to the last first call. Other processes lengthen it less than the wall time.

``cudagraph_pool_bytes``: a replay of a CUDA graph allocates nothing. Since the capture, the intermediate
results have their place in a private pool of the allocator, so the peak of a step does not contain them. This
metric is the growth of all private pools during the compilation, but at most the peak of all tensors in it:
pools grow by segments of megabytes, and eager's side counts tensors. ``peak_memory_bytes`` includes it. torch
gives all CUDA graphs of a process one pool. A second candidate with CUDA graphs reuses its memory, so the
growth is not all that it needs: the number is null then. With ``--isolate`` every candidate has a pool of its
own.
"""

from __future__ import annotations

import hashlib
import os
import re
import resource
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness import counters
from harness.devices import of
from harness.hardware.cpus import processes, text_of
from harness.metrics import declared_beside
from harness.schema import Scalar

if TYPE_CHECKING:
    import torch

WHEN = "compile"

# torchduet's name -> torch's name; torch's numbers are in microseconds
TIMED_PHASES = {
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

PEAK = re.compile(r"VmHWM:\s+(\d+) kB")
HUGE = re.compile(r"AnonHugePages:\s+(\d+) kB")

METRICS = declared_beside(__file__)


@contextmanager
def observe(device: torch.device, numbers: dict[str, Scalar]) -> Iterator[None]:
    pool_bytes, held = of(device).pool_bytes, of(device).begin_peak()
    known = len(generated())
    pools, growth, compiled, cpu_s = pool_bytes(), counters.growing(), counters.compilations(), processor_s()
    waited_s = waiting_s()
    ended = begin_peak()
    with counters.keeping_compilations():
        yield
        compilations = counters.added(compiled, counters.compilations())
    numbers["compile_cpu_s"] = processor_s() - cpu_s
    if waited_s is not None and (waited := waiting_s()) is not None:
        numbers["compile_waiting_s"] = waited - waited_s
    if code := generated()[known:]:
        numbers["generated_code"] = hashlib.sha256(" ".join(sorted(code)).encode()).hexdigest()[:12]
    if huge := HUGE.search(text_of("/proc/self/smaps_rollup")):
        numbers["huge_pages_bytes"] = 1024 * int(huge[1])
    numbers |= {"compile_peak_host_bytes": peak} if (peak := peak_host_bytes(ended)) is not None else {}
    numbers.update(growth())
    after = pool_bytes()
    if after is not None:  # else this kind of device has no such pools
        kept = None if pools is None else grown(pools, after)
        peak = of(device).peak_bytes()
        if kept is not None and held is not None and peak is not None:
            kept = min(kept, peak - held)
        numbers["cudagraph_pool_bytes"] = kept
    if not compilations:
        return
    for name, source in TIMED_PHASES.items():
        numbers[f"compile_{name}"] = total_s(compilations, source)
    numbers["recompiles"] = sum(map(counters.compiled_again, compilations))


def generated() -> list[str]:
    """The digests of the modules of inductor's code that this process has loaded: a module is a graph.

    Those of Triton's kernels, whose code the graph's has, too, are loaded once for all candidates.
    """
    cache = getattr(sys.modules.get("torch._inductor.codecache"), "PyCodeCache", None)
    graphs = [
        module
        for module in getattr(cache, "modules", ())
        if hasattr(module, "call") and not hasattr(module, "benchmark_all_configs")
    ]
    return [str(getattr(module, "key", module.__name__)) for module in graphs]


def grown(before: int, after: int) -> int | None:
    """The growth of the pools; None if it is only a part of what the candidate uses."""
    return None if before and after != before else after - before


def total_s(compilations: Sequence[Any], name: str) -> float | None:
    """Sum (s) of torch's number ``name`` over the compilations that have it; None if none has it."""
    times = [time for compilation in compilations if (time := getattr(compilation, name, None)) is not None]
    return sum(times) / 1e6 if times else None


def processor_s() -> float:
    """Processor time (s) of this process and all of its descendants, with those that have been reaped.

    Linux. Elsewhere without the descendants that still run.
    """
    times = _family()
    return sum(times.values()) / float(os.sysconf("SC_CLK_TCK")) if times else sum(os.times()[:4])


def waiting_s() -> float | None:
    """Seconds in which this thread was ready and other work had its processor; None without /proc."""
    numbers = text_of("/proc/thread-self/schedstat").split()
    return int(numbers[1]) / 1e9 if len(numbers) > 1 else None


def begin_peak() -> tuple[float, ...]:
    """Sets the peaks of resident memory to what is resident now, where Linux allows it.

    Of this process and its descendants. Returns what those have used that ended before.
    """
    for pid in _family():
        with suppress(OSError):
            Path(f"/proc/{pid}/clear_refs").write_text("5")
    return resource.getrusage(resource.RUSAGE_CHILDREN)


def peak_host_bytes(ended: tuple[float, ...]) -> int | None:
    """The sum of the peaks of resident memory of this process and its descendants; None without /proc.

    Of descendants that have ended, only the largest counts, if any has ended since ``begin_peak``, which
    returned ``ended``. Processes share pages and peak at different times, so the sum is an upper bound.
    """
    peaks = [PEAK.search(text) for pid in _family() if (text := text_of(f"/proc/{pid}/status"))]
    if not peaks:
        return None
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    ended_kb = children.ru_maxrss if children != ended else 0
    return 1024 * (ended_kb + sum(int(peak[1]) for peak in peaks if peak))


def _family() -> dict[int, int]:
    """Process -> clock ticks of processor time, of this process and its living descendants; {} without /proc.

    The ticks contain those of children that have been reaped.
    """
    times: dict[int, int] = {}
    children: dict[int, list[int]] = {}
    for pid, fields in processes():
        times[pid] = sum(map(int, fields[11:15]))  # proc(5): utime, stime, cutime, cstime
        children.setdefault(int(fields[1]), []).append(pid)
    family = [os.getpid()]
    for pid in family:
        family += children.get(pid, ())
    return {pid: times[pid] for pid in family if pid in times} if family[0] in times else {}
