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
from collections.abc import Iterator
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
    memory = [event["args"] for event in events if event.get("name") == "[memory]"]
    numbers["step_peak_bytes"] = _peak_above_start(memory)


def _peak_above_start(events: list[dict[str, Any]]) -> int:
    """The profiler's running total goes on from one profile to the next: only its rise counts."""
    if not events:
        return 0
    start = int(events[0]["Total Allocated"]) - int(events[0]["Bytes"])
    return max(0, max(int(event["Total Allocated"]) for event in events) - start)
