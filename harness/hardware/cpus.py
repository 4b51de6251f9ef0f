"""The CPUs of this machine, and what the system's files say of its processes."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

VECTORS = (
    ("amx_bf16", "AMX", 16),
    ("avx512_bf16", "AVX-512 with bfloat16", 16),
    ("avx512f", "AVX-512", 16),
    ("avx2", "AVX2", 8),
)
"""Of a vector extension, the widest first: the kernel's flag, the name, how many float32 a vector has."""


def usable_cpus() -> tuple[int, ...]:
    """The CPUs on which this process may run; where the system does not tell them apart, all."""
    if hasattr(os, "sched_getaffinity"):
        return tuple(sorted(os.sched_getaffinity(0)))
    return tuple(range(os.cpu_count() or 1))


def cpu_model(root: Path = Path("/")) -> str:
    """The processor's name and, on x86, its widest vectors: ``AMD EPYC (AVX2)``.

    Virtual machines give one name to many processors; without AVX-512 a bfloat16 product is far slower.
    """
    cpu = first_cpu(root)
    if "model name" not in cpu:
        return platform.processor() or platform.machine()
    widest = widest_vectors(cpu)
    return f"{cpu['model name']} ({widest[0]})" if widest else cpu["model name"]


def first_cpu(root: Path = Path("/")) -> dict[str, str]:
    """What the kernel says of the first CPU, by name: its flags, its clock now; {} where it says nothing."""
    lines = [line.partition(":") for line in text_of(root / "proc/cpuinfo").splitlines()]
    return {name.strip(): value.strip() for name, _, value in reversed(lines)}


def widest_vectors(cpu: Mapping[str, str]) -> tuple[str, int] | None:
    """The name of this CPU's widest vectors and the float32 in each; None without any of ``VECTORS``."""
    flags = cpu.get("flags", "").split()
    return next(((name, floats) for flag, name, floats in VECTORS if flag in flags), None)


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
        return Path(path).read_bytes().decode(errors="replace").strip()
    except OSError:
        return ""


def processes() -> Iterator[tuple[int, list[str]]]:
    """Each process, and what proc(5) says of it in ``stat`` from its state on; none without /proc."""
    for folder in Path("/proc").glob("[0-9]*"):
        if fields := text_of(folder / "stat").rpartition(")")[2].split():
            yield int(folder.name), fields
