"""Peak memory that one step allocates beyond what was there before it (bytes).

On CUDA, the caching allocator's own peak. On a CPU, torch's allocator as its
profiler reports it: every allocation and release of the step in order, so
that the peak is exact, repeatable, and blind to what other variants left in
the heap (resident memory is not: it hardly ever shrinks). Memory that
libraries take behind torch's back (oneDNN's scratch space) is not seen.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

from harness.schema import Scalar

WHEN = "step"


@contextmanager
def observe(device: torch.device, numbers: dict[str, Scalar]) -> Iterator[None]:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
        torch.cuda.reset_peak_memory_stats(device)
        before = torch.cuda.memory_allocated(device)
        yield
        torch.cuda.synchronize(device)
        numbers["step_peak_bytes"] = torch.cuda.max_memory_allocated(device) - before
        return
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        yield
    with tempfile.TemporaryDirectory(prefix="torchduet-") as folder:
        trace = Path(folder) / "trace.json"
        profiler.export_chrome_trace(str(trace))
        events = json.loads(trace.read_text(errors="replace"))["traceEvents"]
    memory = sorted((event for event in events if _is_host_memory(event)), key=lambda e: e["ts"])
    numbers["step_peak_bytes"] = peak_of([event["args"] for event in memory])


def _is_host_memory(event: Mapping[str, Any]) -> bool:
    return event.get("name") == "[memory]" and event["args"].get("Device Type", 0) == 0


def peak_of(events: Iterable[Mapping[str, Any]]) -> int:
    """The most bytes alive at once of those allocated in these events, which come in order of time.

    The profiler's own running total cannot serve: it still holds what an
    earlier profile allocated and nobody saw released.
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
