"""The CPUs of this machine and of this process."""

from __future__ import annotations

import os
import platform
from collections.abc import Sequence
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


def cores_of(cpus: Sequence[int], root: Path = Path("/")) -> list[tuple[int, ...]]:
    """These CPUs by core. The system may number the two threads of a core far apart."""
    cores: dict[str, list[int]] = {}
    for cpu in cpus:
        threads = _read(root / f"sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list")
        cores.setdefault(threads or str(cpu), []).append(cpu)
    return [tuple(core) for core in cores.values()]


def cpus_near(device: str, root: Path = Path("/")) -> frozenset[int]:
    """The CPUs of the NUMA node of ``cuda:1``; none if the node is unknown, or cards are renumbered."""
    cards = sorted((root / "proc/driver/nvidia/gpus").glob("*"))
    number = device.partition(":")[2]
    if not number or int(number) >= len(cards) or "CUDA_VISIBLE_DEVICES" in os.environ:
        return frozenset()
    text = _read(root / f"sys/bus/pci/devices/{cards[int(number)].name}/local_cpulist")
    spans = (span.split("-") for span in text.split(",") if span)
    return frozenset(cpu for ends in spans for cpu in range(int(ends[0]), int(ends[-1]) + 1))


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii").strip()
    except OSError:
        return ""
