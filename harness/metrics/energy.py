"""``energy_per_step_j``: energy of one step (J), where the machine tells.

On NVIDIA GPUs the device's own counter (NVML, with ``nvidia-ml-py`` installed);
on CPUs RAPL's of all packages, where the system lets us read it. Steps are
repeated for about a second, since both counters move in steps; whatever else
runs on the device or the packages meanwhile is counted with it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import torch

from harness.metrics import ByVariant, Ended
from harness.nvml import gpu_of

WHEN = "end"
LASTING_S = 1.0
POWERCAP = Path("/sys/class/powercap")

Meter = Callable[[], float]
"""Joules used so far, from any beginning."""


def measure(ended: Ended) -> ByVariant:
    meter = meter_of(ended.device)
    if meter is None:
        return {}
    found: ByVariant = {}
    for name, variant in ended.variants.items():
        found[name] = {"energy_per_step_j": per_step_j(variant.step, meter, ended.synchronise)}
        variant.release()
    return found


def meter_of(device: torch.device) -> Meter | None:
    if device.type == "cuda":
        gpu = gpu_of(device)
        return None if gpu is None else gpu.energy_j
    return rapl_meter(POWERCAP)


def rapl_meter(root: Path) -> Meter | None:
    """The sum over packages; None where there are none or reading them is not allowed."""
    counters = [at / "energy_uj" for at in sorted(root.glob("intel-rapl:*")) if at.name.count(":") == 1]
    try:
        packages = [c for c in counters if (c.parent / "name").read_text().startswith("package")]
        ranges = [int((c.parent / "max_energy_range_uj").read_text()) for c in packages]
        last = [int(c.read_text()) for c in packages]
    except (OSError, ValueError):
        return None
    used = [0] * len(packages)

    def read() -> float:
        for place, counter in enumerate(packages):
            now = int(counter.read_text())
            # a counter that begins again at 0 has passed its range once
            used[place] += (now - last[place]) % (ranges[place] + 1)
            last[place] = now
        return sum(used) / 1e6

    return read if packages else None


def per_step_j(
    step: Callable[[], object],
    meter: Meter,
    synchronise: Callable[[], None],
    clock: Callable[[], float] = time.monotonic,
) -> float | None:
    """Joules of one step, from steps for about a second (three at least). None where nothing moved."""
    synchronise()
    began, before, steps = clock(), meter(), 0
    while steps < 3 or clock() - began < LASTING_S:
        step()
        synchronise()
        steps += 1
    used = meter() - before
    return used / steps if used > 0 else None
