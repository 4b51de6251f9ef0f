"""The CPUs of this machine, and what the system's files say of its processes."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterator, Sequence
from pathlib import Path


def usable_cpus() -> tuple[int, ...]:
    """The CPUs on which this process may run; where the system does not tell them apart, all."""
    if hasattr(os, "sched_getaffinity"):
        return tuple(sorted(os.sched_getaffinity(0)))
    return tuple(range(os.cpu_count() or 1))


def cpu_model() -> str:
    """The processor's name."""
    names = [line for line in text_of("/proc/cpuinfo").splitlines() if line.startswith("model name")]
    return names[0].split(":", 1)[1].strip() if names else platform.processor() or platform.machine()


def cores_of(cpus: Sequence[int], root: Path = Path("/")) -> list[tuple[int, ...]]:
    """These CPUs by core. The system may number the two threads of a core far apart."""
    cores: dict[str, list[int]] = {}
    for cpu in cpus:
        threads = text_of(root / f"sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list")
        cores.setdefault(threads or str(cpu), []).append(cpu)
    return [tuple(core) for core in cores.values()]


def cpus_near(device: str, root: Path = Path("/")) -> frozenset[int]:
    """The CPUs of the NUMA node of ``cuda:1``; none if the node is unknown, or cards are renumbered."""
    cards = sorted((root / "proc/driver/nvidia/gpus").glob("*"))
    number = device.partition(":")[2]
    if not number or int(number) >= len(cards) or "CUDA_VISIBLE_DEVICES" in os.environ:
        return frozenset()
    text = text_of(root / f"sys/bus/pci/devices/{cards[int(number)].name}/local_cpulist")
    spans = (span.split("-") for span in text.split(",") if span)
    return frozenset(cpu for ends in spans for cpu in range(int(ends[0]), int(ends[-1]) + 1))


def text_of(path: str | Path) -> str:
    """The file's text; "" if the system has no such file, or the process that it is about has ended."""
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""


def processes() -> Iterator[tuple[int, list[str]]]:
    """Each process, and what proc(5) says of it in ``stat`` from its state on; none without /proc."""
    for folder in Path("/proc").glob("[0-9]*"):
        if fields := text_of(folder / "stat").rpartition(")")[2].split():
            yield int(folder.name), fields
