"""The CPUs of this process."""

from __future__ import annotations

import os


def usable_cpus() -> tuple[int, ...]:
    """The CPUs on which this process may run; where the system does not tell them apart, all."""
    if hasattr(os, "sched_getaffinity"):
        return tuple(sorted(os.sched_getaffinity(0)))
    return tuple(range(os.cpu_count() or 1))
