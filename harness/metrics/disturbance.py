"""Disturbances of the timed rounds: stolen CPU time, context switches, throttling, the allocator's work.

The counters are read before and after each batch of rounds, and their differences are added over batches:

Times are over all CPUs (/proc/stat, in steps of 10 ms), and of the process's group (cgroup cpu.stat). An
allocator that asks again, or asks the driver, stops the device's work; not every device counts that.
"""

from __future__ import annotations

import os
import resource
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from harness.declared import Seen, finite, ratio
from harness.devices import of
from harness.hardware.cpus import text_of
from harness.metrics import declared_beside
from harness.schema import Scalar

if TYPE_CHECKING:
    import torch


def _share(seen: Seen, name: str, cpus: float | None = 1.0) -> float | None:
    wall_s = seen.number("rounds_wall_s")
    return ratio(seen.number(name), wall_s * cpus) if wall_s and cpus else None


WHEN = "rounds"
METRICS = declared_beside(
    __file__,
    stolen_share=lambda seen: _share(seen, "stolen_cpu_s", finite(seen.environment.get("cpu_count"))),
    involuntary_switches_per_s=lambda seen: _share(seen, "involuntary_switches"),
    throttled_share=lambda seen: _share(seen, "throttled_s"),
)
STOLEN = 8  # column of the line "cpu" in /proc/stat
THROTTLED = (  # file, key, units per second: cgroup version 2, then 1
    ("/sys/fs/cgroup/cpu.stat", "throttled_usec", 1e6),
    ("/sys/fs/cgroup/cpu/cpu.stat", "throttled_time", 1e9),
)


@contextmanager
def observe(device: torch.device, numbers: dict[str, Scalar]) -> Iterator[None]:
    before = read(device)
    yield
    for name, now in read(device).items():
        earlier = before.get(name)
        numbers[name] = now - earlier if now is not None and earlier is not None else None


def read(device: torch.device) -> dict[str, float | int | None]:
    """Totals so far; None for a counter that this system does not have."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return {
        "stolen_cpu_s": stolen_s(text_of("/proc/stat")),
        "involuntary_switches": usage.ru_nivcsw,
        "voluntary_switches": usage.ru_nvcsw,
        "throttled_s": throttled_s(),
        "rounds_wall_s": time.monotonic(),
        **of(device).allocator_counts(),
    }


def stolen_s(stat: str) -> float | None:
    """Stolen seconds in the text of /proc/stat. None if all counters are 0, as in some sandboxes."""
    fields = stat.partition("\n")[0].split()
    if len(fields) <= STOLEN or fields[0] != "cpu" or not any(int(value) for value in fields[1:]):
        return None
    return int(fields[STOLEN]) / os.sysconf("SC_CLK_TCK")


def throttled_s() -> float | None:
    """Seconds for which a quota has stopped this group so far; None if no cgroup file has the counter."""
    for path, key, units in THROTTLED:
        for line in text_of(path).splitlines():
            name, _, value = line.partition(" ")
            if name == key:
                return int(value) / units
    return None
