"""What else the machine did during the timed rounds: time stolen, switches, throttling.

Read before the first round of a batch and after its last, added up over batches:

- ``stolen_cpu_s``: what the hypervisor gave to others while this system wanted
  to run, over all CPUs (/proc/stat, in steps of 10 ms);
- ``involuntary_switches``: how often this process lost a CPU to another;
  ``voluntary_switches``: how often it waited for something (getrusage);
- ``throttled_s``: how long a CPU quota stopped the process's group (cgroup cpu.stat);
- ``rounds_wall_s``: how long the batches lasted.
"""

from __future__ import annotations

import os
import resource
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch

from harness.schema import Scalar

WHEN = "rounds"
STOLEN = 8  # column of the line "cpu" in /proc/stat
THROTTLED = (  # file, key, units a second: cgroup version 2, then 1
    ("/sys/fs/cgroup/cpu.stat", "throttled_usec", 1e6),
    ("/sys/fs/cgroup/cpu/cpu.stat", "throttled_time", 1e9),
)


@contextmanager
def observe(device: torch.device, numbers: dict[str, Scalar]) -> Iterator[None]:
    before = read()
    yield
    for name, now in read().items():
        earlier, so_far = before[name], numbers.get(name, 0)
        known = now is not None and earlier is not None and isinstance(so_far, (int, float))
        numbers[name] = so_far + (now - earlier) if known else None  # type: ignore[operator]


def read() -> dict[str, float | int | None]:
    """Totals so far; None for what this system does not tell."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return {
        "stolen_cpu_s": stolen_s(_text("/proc/stat")),
        "involuntary_switches": usage.ru_nivcsw,
        "voluntary_switches": usage.ru_nvcsw,
        "throttled_s": throttled_s(),
        "rounds_wall_s": time.monotonic(),
    }


def stolen_s(stat: str) -> float | None:
    """Stolen seconds in the text of /proc/stat. None where nothing is counted, as in some sandboxes."""
    fields = stat.partition("\n")[0].split()
    if len(fields) <= STOLEN or fields[0] != "cpu" or not any(int(value) for value in fields[1:]):
        return None
    return int(fields[STOLEN]) / os.sysconf("SC_CLK_TCK")


def throttled_s() -> float | None:
    """Seconds for which a quota has stopped this group so far; None where no group says."""
    for path, key, units in THROTTLED:
        for line in _text(path).splitlines():
            name, _, value = line.partition(" ")
            if name == key:
                return int(value) / units
    return None


def _text(path: str) -> str:
    try:
        return Path(path).read_text(encoding="ascii")
    except (OSError, UnicodeDecodeError):
        return ""
