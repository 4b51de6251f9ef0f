"""Peak memory that one step allocates (bytes).

On a GPU, the peak of the caching allocator, and the memory of CUDA graphs (``cudagraph_pool_bytes``).
On a CPU, the peak of torch's allocator, from the profiler's list of all allocations and releases of the step.
So the peak is exact, repeatable, and independent of other variants' memory. (Resident memory is not: it
hardly ever shrinks.) Memory that libraries allocate without torch (oneDNN's scratch space) is not counted.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.devices import of
from harness.metrics import declared_beside
from harness.schema import Scalar

if TYPE_CHECKING:
    import torch

    from harness.timing.step import Variant

WHEN = "step"
METRICS = declared_beside(__file__, memory_ratio=lambda seen: seen.eager_over_candidate("peak_memory_bytes"))


@contextmanager
def observe(device: torch.device, numbers: dict[str, Scalar]) -> Iterator[None]:
    counted = of(device)
    if counted.accelerated:
        before = counted.begin_peak()
        yield
        peak = counted.peak_bytes()
        numbers["step_peak_bytes"] = None if before is None or peak is None else peak - before
        return
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        yield
    with tempfile.TemporaryDirectory(prefix="torchduet-") as folder:
        trace = Path(folder) / "trace.json"
        profiler.export_chrome_trace(str(trace))
        events = json.loads(trace.read_text(errors="replace"))["traceEvents"]
    on_host = [e for e in events if e.get("name") == "[memory]" and e["args"].get("Device Type", 0) == 0]
    numbers["step_peak_bytes"] = peak_of(e["args"] for e in sorted(on_host, key=lambda e: e["ts"]))


def complete(variant: Variant, numbers: dict[str, Scalar]) -> None:
    """Adds what exists before the step, and CUDA graphs, to the step's peak."""
    step_peak, graphs = numbers.pop("step_peak_bytes", None), variant.graph_bytes
    persistent = variant.persistent_bytes()
    numbers["persistent_bytes"] = persistent
    numbers["peak_memory_bytes"] = None
    if isinstance(step_peak, int) and graphs is not None:
        numbers["peak_memory_bytes"] = persistent + step_peak + graphs


def peak_of(events: Iterable[Mapping[str, Any]]) -> int:
    """The peak of the bytes that these events, sorted by time, allocate and have not released.

    The profiler's own running total also counts memory of earlier profiles, whose release it did not record.
    """
    alive: dict[int, int] = {}
    total = most = 0
    for event in events:
        size, address = int(event["Bytes"]), int(event["Addr"])
        if size > 0:
            alive[address] = size
            total += size
            most = max(most, total)
        else:
            total -= alive.pop(address, 0)
    return most
