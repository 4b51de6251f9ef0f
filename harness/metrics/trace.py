"""``--export-profiler-trace``: a Chrome trace of each variant, and the kernels whose time changed most.

``STEPS`` steps of each variant under torch's profiler, the variants in turn
after the timed rounds; the files ``trace-<variant>.json`` are written beside the
case's log. ``kernel_changes`` compares the totals of each kernel (on a GPU) or
operation (on a CPU) with eager's, in ms of one step: text, one line each.
Profiling slows small operations: the shares are of use, not the sums.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

from harness.metrics import ByVariant, Ended
from harness.schema import BASELINE
from harness.step import Variant

WHEN = "end"
WANTED = "profiler_trace"
STEPS = 3
SHOWN = 10
NAME_LENGTH = 80


def measure(ended: Ended) -> ByVariant:
    totals: dict[str, dict[str, float]] = {}
    for name, variant in ended.variants.items():
        try:
            totals[name] = traced(name, variant, ended)
        except Exception as error:  # one variant that the profiler cannot follow costs itself alone
            print(f"no trace of {name}: {type(error).__name__}: {error}", flush=True)
    eager = totals.pop(BASELINE, None)
    if eager is None:
        return {}
    return {name: {"kernel_changes": changes(eager, times)} for name, times in totals.items()}


def traced(name: str, variant: Variant, ended: Ended) -> dict[str, float]:
    """Writes the variant's trace into the current folder; ms of one step by kernel."""
    activities = [ProfilerActivity.CPU]
    if ended.device.type == "cuda":
        activities.append(ProfilerActivity.CUDA)
    variant.step()
    ended.synchronise()
    with profile(activities=activities) as profiler:
        for _ in range(STEPS):
            variant.step()
        ended.synchronise()
    variant.release()
    profiler.export_chrome_trace(str(Path.cwd() / trace_file(name)))
    return {
        event.key: time_us / 1e3 / STEPS
        for event in profiler.key_averages()
        if (time_us := _time_us(event, ended.device)) > 0
    }


def trace_file(variant: str) -> str:
    return f"trace-{re.sub(r'[^A-Za-z0-9_.-]+', '_', variant)}.json"


def _time_us(event: Any, device: torch.device) -> float:
    """The event's own time: on a GPU that of its kernels alone, which are events of the device itself."""
    if device.type != "cuda":
        return float(event.self_cpu_time_total)
    on_device = str(event.device_type).endswith("CUDA")
    return float(event.self_device_time_total) if on_device else 0.0


def changes(baseline: Mapping[str, float], candidate: Mapping[str, float]) -> str | None:
    """``aten::addmm: 1.203 -> 0.610 ms (-0.593)``, the largest change first."""
    names = {*baseline, *candidate}
    change = {name: candidate.get(name, 0.0) - baseline.get(name, 0.0) for name in names}
    most = sorted(change, key=lambda name: (-abs(change[name]), name))[:SHOWN]
    lines = [
        f"{' '.join(name.split())[:NAME_LENGTH]}: {baseline.get(name, 0.0):.3f} -> "
        f"{candidate.get(name, 0.0):.3f} ms ({change[name]:+.3f})"
        for name in most
    ]
    return "\n".join(lines) or None
