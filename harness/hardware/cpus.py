"""The CPUs of this machine and of this process."""

from __future__ import annotations

import os
import platform
from pathlib import Path


def usable_cpus() -> tuple[int, ...]:
    """The CPUs on which this process may run; where the system does not tell them apart, all."""
    if hasattr(os, "sched_getaffinity"):
        return tuple(sorted(os.sched_getaffinity(0)))
    return tuple(range(os.cpu_count() or 1))


def cpu_model() -> str:
    """The processor's name."""
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()
