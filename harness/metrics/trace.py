"""``--explain``: the kernels whose time changed most; ``--export-profiler-trace``: also a Chrome trace.

After the timed rounds, some steps of each variant run under torch's profiler, and the fastest counts.
The files ``trace-<variant>.json`` are written into the folder of the case's log. ``kernel_changes`` compares
the time of each kernel (on a GPU) or operator (on a CPU) with eager's, in ms of one step: text, one line
each. Times are self times. Ranges that only contain other events (autograd's, Dynamo's) are left out.
Inductor's kernels for a CPU have names only with ``inductor[cpp.enable_kernel_profile=True]``; else the self
time of their graph is shown. ``step_events`` has every event's time, and the whole step's under ``STEP``.
Profiling slows down small operations: compare the shares, not the sums.
"""

from __future__ import annotations

import json
import math
import re
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.devices import of
from harness.failures import line_of
from harness.metrics import ByVariant, Ended, declared_beside
from harness.schema import BASELINE

if TYPE_CHECKING:
    import torch

    from harness.timing.step import Variant

WHEN = "end"
METRICS = declared_beside(__file__)
WANTED = ("explain", "profiler_trace")
FEWEST, MOST, LIMIT_S = 3, 10, 1.0  # steps, and the seconds after which no further step begins
SHOWN = 10
LEAST = 1e-4  # of the step; smaller events are left out
NAME_LENGTH = 80
OPERATOR = re.compile(r"^\w+::\w")  # aten::mm, torchvision::nms
RANGES = ("autograd::engine::", "torch::autograd::")
STEP = "step"
KERNEL = re.compile(r"(?:graph_\d+_)?((?:cpp|triton_\w{2,4})_fused_\w*)")
GENERATED = "## Call CompiledFxGraph"
GENERATED_NAME = "generated kernels (of compiled graphs)"


def measure(ended: Ended) -> ByVariant:
    totals: dict[str, dict[str, float]] = {}
    events: dict[str, dict[str, float]] = {}
    for name, variant in ended.variants.items():
        try:
            totals[name], events[name] = traced(name, variant, ended)
        except Exception as error:  # the other variants still have traces
            print(f"no trace of {name}: {type(error).__name__}: {line_of(error)}", flush=True)
    numbers: ByVariant = {name: {"step_events": json.dumps(times)} for name, times in events.items()}
    eager = totals.pop(BASELINE, None)
    if eager is not None:
        for name, times in totals.items():
            numbers[name]["kernel_changes"] = changes(eager, times)
    return numbers


def traced(name: str, variant: Variant, ended: Ended) -> tuple[dict[str, float], dict[str, float]]:
    """Writes the variant's trace into the current folder; ms of one step by kernel, and by event."""
    from torch.profiler import ProfilerActivity, profile

    activities = [ProfilerActivity.CPU]
    kernels = of(ended.device).profiler_activity()
    if kernels is not None:
        activities.append(getattr(ProfilerActivity, kernels))
    variant.step()
    ended.synchronize()
    step_ms = math.inf
    begun = time.perf_counter()
    for done in range(MOST):
        if done >= FEWEST and time.perf_counter() - begun > LIMIT_S:
            break
        with profile(activities=activities) as profiled:
            start = time.perf_counter()
            variant.step()
            ended.synchronize()
            taken_ms = (time.perf_counter() - start) * 1e3
        if taken_ms < step_ms:
            step_ms, profiler = taken_ms, profiled
    variant.release()
    if ended.job.extras.profiler_trace:
        profiler.export_chrome_trace(str(Path.cwd() / trace_file(name)))
    times: dict[str, float] = {}
    events = {STEP: round(step_ms, 4)}
    for event in profiler.key_averages():
        kernel = leaf(event.key) if kernels is None else str(event.key)
        ms = _time_us(event, ended.device) / 1e3
        if kernel is not None and ms > 0:
            times[kernel] = times.get(kernel, 0.0) + ms
        if ms >= LEAST * step_ms:
            generated = KERNEL.fullmatch(str(event.key))
            key = generated[1] if generated else str(event.key)
            events[key] = round(events.get(key, 0.0) + ms, 4)
    return times, events


def leaf(name: str) -> str | None:
    """The name of this CPU event in the table; None for a range that only contains other events."""
    if name.startswith(GENERATED):
        return GENERATED_NAME
    if generated := KERNEL.fullmatch(name):
        return generated[1]
    return name if OPERATOR.match(name) and not name.startswith(RANGES) else None


def trace_file(variant: str) -> str:
    return f"trace-{re.sub(r'[^A-Za-z0-9_.-]+', '_', variant)}.json"


def _time_us(event: Any, device: torch.device) -> float:
    """The event's self time. On a GPU only kernels count, which are events of the device."""
    kernels = of(device).profiler_activity()
    if kernels is None:
        return float(event.self_cpu_time_total)
    annotation = getattr(event, "is_user_annotation", False)  # a range that is also shown on the device
    on_device = str(event.device_type).endswith(kernels) and not annotation
    if not on_device:
        return 0.0
    time_us = getattr(event, "self_device_time_total", None)
    return float(event.self_cuda_time_total if time_us is None else time_us)  # its name in torch 2.0 to 2.2


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
