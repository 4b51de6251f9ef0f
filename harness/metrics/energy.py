"""``energy_per_step_j``: energy of one step (J), if the machine has a counter.

On NVIDIA GPUs the counter is the device's own (NVML, with ``nvidia-ml-py`` installed), on CPUs RAPL's of all
packages, if the system permits reading it. Steps are repeated for a second, on a GPU for five with as many
steps between two waits as in the rounds, because both counters change in intervals. The energy of other
programs on the device or the packages is included.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from harness.declared import SIDES, WORK, Metric
from harness.devices import of
from harness.hardware.nvml import gpu_of
from harness.metrics import ByVariant, Ended
from harness.timing.first_calls import timed
from harness.timing.measure import stream_of

if TYPE_CHECKING:
    import torch

WHEN = "end"
METRICS = (
    Metric("energy_per_step_j", "J", "energy of one step, if device or CPU has a counter", sides=SIDES),
    Metric(
        "energy_ratio",
        "ratio",
        "eager's energy / the candidate's; above 1, the candidate uses less",
        derive=lambda seen: seen.eager_over_candidate("energy_per_step_j"),
        group=WORK,
    ),
)
LASTING_S = 1.0
POWERCAP = Path("/sys/class/powercap")

Meter = Callable[[], float]
"""Joules used so far. Only differences have a meaning."""


def measure(ended: Ended) -> ByVariant:
    meter = meter_of(ended.device)
    if meter is None:
        return {}
    energies: ByVariant = {}
    for name, variant in ended.variants.items():
        lasting_s, stream = LASTING_S, 1
        if of(ended.device).accelerated:
            lasting_s, stream = 5.0, stream_of(timed(variant.step, ended.synchronize)[0])
        step_j = per_step_j(variant.step, meter, ended.synchronize, lasting_s=lasting_s, stream=stream)
        energies[name] = {"energy_per_step_j": step_j}
        variant.release()
    return energies


def meter_of(device: torch.device) -> Meter | None:
    if of(device).accelerated:
        gpu = gpu_of(device)
        return None if gpu is None else gpu.energy_j
    return rapl_meter(POWERCAP)


def rapl_meter(root: Path) -> Meter | None:
    """The sum over packages; None if there are none or the system does not permit reading them."""
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
            # a counter that begins again at 0 has wrapped around once
            used[place] += (now - last[place]) % (ranges[place] + 1)
            last[place] = now
        return sum(used) / 1e6

    return read if packages else None


def per_step_j(
    step: Callable[[], object],
    meter: Meter,
    synchronize: Callable[[], None],
    clock: Callable[[], float] = time.monotonic,
    *,
    lasting_s: float = LASTING_S,
    stream: int = 1,
) -> float | None:
    """Joules of one step, from steps for ``lasting_s`` (at least three). None if the counter stays equal.

    ``stream``: the steps between two waits, as in the rounds.
    """
    synchronize()
    began, before, steps = clock(), meter(), 0
    while steps < 3 or clock() - began < lasting_s:
        for _ in range(stream):
            step()
        synchronize()
        steps += stream
    used = meter() - before
    return used / steps if used > 0 else None
