"""Checks of the machine's settings that influence timings, each with its source and advice."""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from harness.hardware.cpus import usable_cpus

GIB = 1 << 30
BUSY = 0.1  # load for each CPU
LEAST_MEMORY = 0.1  # share that is available
CPU = "sys/devices/system/cpu"
STEADY_CLOCKS = ("tsc", "kvm-clock", "arch_sys_counter", "hyperv_clocksource_tsc_page")


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """The machine to check. ``run`` returns the output of a command, or None if the command failed."""

    root: Path
    physical_cores: int | None
    run: Callable[[Sequence[str]], str | None]
    environment: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))
    cpus: int = field(default_factory=lambda: len(usable_cpus()))

    def text(self, path: str) -> str | None:
        """The stripped text of a file. None if the file cannot be read."""
        try:
            return (self.root / path).read_text(encoding="utf-8", errors="replace").strip()
        except OSError:
            return None

    def texts(self, pattern: str) -> list[str]:
        found = (self.text(str(path.relative_to(self.root))) for path in sorted(self.root.glob(pattern)))
        return [text for text in found if text is not None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """A result, where it was read, and what to change ("" if nothing is wrong or the state is unknown)."""

    name: str
    found: str
    read: str
    advice: str = ""


def _versions(_: Machine) -> Iterator[Check]:
    yield Check(name="Python", found=platform.python_version(), read="this interpreter")
    yield Check(name="system", found=platform.platform(), read="uname")


def _governor(machine: Machine) -> Iterator[Check]:
    found = sorted(set(machine.texts(f"{CPU}/cpu[0-9]*/cpufreq/scaling_governor")))
    slow = [name for name in found if name != "performance"]
    yield Check(
        name="CPU governor",
        found=", ".join(found) or "unknown, as in most virtual machines",
        read=f"/{CPU}/cpu*/cpufreq/scaling_governor",
        advice="the clock follows the load: sudo cpupower frequency-set -g performance" if slow else "",
    )


def _turbo(machine: Machine) -> Iterator[Check]:
    for path, on, off in (("intel_pstate/no_turbo", "0", "1"), ("cpufreq/boost", "1", "0")):
        text = machine.text(f"{CPU}/{path}")
        if text is not None:
            advice = f"the clock depends on heat and on other cores: echo {off} | sudo tee /{CPU}/{path}"
            yield Check(
                name="turbo",
                found="on" if text == on else "off",
                read=f"/{CPU}/{path}",
                advice=advice if text == on else "",
            )
            return
    yield Check(name="turbo", found="unknown, as in most virtual machines", read=f"/{CPU}/cpufreq/boost")


def _load(machine: Machine) -> Iterator[Check]:
    text = machine.text("proc/loadavg")
    if text is None:
        return
    load = float(text.split()[0])
    busy = load > BUSY * machine.cpus
    yield Check(
        name="load",
        found=f"{load:g} in the last minute, on {machine.cpus} CPUs",
        read="/proc/loadavg",
        advice="other processes take CPU time from the samples: end them, or wait (top shows them)"
        if busy
        else "",
    )


def _threads(machine: Machine) -> Iterator[Check]:
    cores = min(machine.cpus, machine.physical_cores or machine.cpus)
    text = machine.environment.get("OMP_NUM_THREADS")
    yield Check(
        name="CPUs",
        found=f"{machine.cpus} usable, {machine.physical_cores or 'unknown'} physical cores",
        read="sched_getaffinity, /proc/cpuinfo",
    )
    if text is None:
        advice = f"two threads on one core slow each other: --threads={cores}" if machine.cpus > cores else ""
        yield Check(name="threads", found="torch's choice", read="OMP_NUM_THREADS is not set", advice=advice)
        return
    # OMP_NUM_THREADS may be a list, one number for each level of nesting
    first = text.split(",")[0].strip()
    advice = f"OMP_NUM_THREADS={text} is not a number of threads: unset it, or use --threads"
    if first.isdigit():
        too_many = int(first) > cores
        advice = f"more threads than the {cores} usable cores: --threads={cores}" if too_many else ""
    yield Check(name="threads", found=text, read="OMP_NUM_THREADS", advice=advice)


def _quota(machine: Machine) -> Iterator[Check]:
    """Reads cpu.max of cgroup v2 (``200000 100000`` or ``max 100000``), else the files of cgroup v1."""
    read = "/sys/fs/cgroup/cpu.max"
    text = machine.text("sys/fs/cgroup/cpu.max")
    if text is None:
        read = "/sys/fs/cgroup/cpu/cpu.cfs_quota_us"
        quota, period = (machine.text(f"sys/fs/cgroup/cpu/cpu.cfs_{what}_us") for what in ("quota", "period"))
        text = f"{'max' if quota == '-1' else quota} {period}" if quota and period else None
    if text is None:
        return
    quota_us, _, period_us = text.partition(" ")
    if quota_us == "max":
        yield Check(name="CPU quota", found="none", read=read)
        return
    allowed = int(quota_us) / int(period_us or 100_000)
    advice = f"above the quota all threads are stopped: --threads={max(1, int(allowed))}, or raise the quota"
    yield Check(
        name="CPU quota",
        found=f"{allowed:g} CPUs",
        read=read,
        advice=advice if allowed < machine.cpus else "",
    )


def _memory(machine: Machine) -> Iterator[Check]:
    lines = (line.partition(":") for line in (machine.text("proc/meminfo") or "").splitlines())
    sizes = {name: int(value.split()[0]) * 1024 for name, _, value in lines if value.split()}
    if "MemTotal" not in sizes or "MemAvailable" not in sizes:
        return
    total, available = sizes["MemTotal"], sizes["MemAvailable"]
    little = available < LEAST_MEMORY * total
    yield Check(
        name="memory",
        found=f"{available / GIB:.1f} of {total / GIB:.1f} GiB available",
        read="/proc/meminfo",
        advice="little memory is available: end other processes, or use --max-memory" if little else "",
    )
    used = sizes.get("SwapTotal", 0) - sizes.get("SwapFree", 0)
    yield Check(
        name="swap",
        found=f"{used / GIB:.1f} of {sizes.get('SwapTotal', 0) / GIB:.1f} GiB used",
        read="/proc/meminfo",
        advice="reading a page from disk takes milliseconds: sudo swapoff -a, if enough memory is free"
        if used
        else "",
    )


def _huge_pages(machine: Machine) -> Iterator[Check]:
    path = "sys/kernel/mm/transparent_hugepage/enabled"
    text = machine.text(path)
    if text is None:
        return
    setting = text.partition("[")[2].partition("]")[0] or text
    advice = f"the kernel moves memory in the background: echo madvise | sudo tee /{path}"
    yield Check(
        name="transparent huge pages",
        found=setting,
        read=f"/{path}",
        advice=advice if setting == "always" else "",
    )


def _clock(machine: Machine) -> Iterator[Check]:
    path = "sys/devices/system/clocksource/clocksource0/current_clocksource"
    text = machine.text(path)
    if text is None:
        return
    slow = text not in STEADY_CLOCKS
    advice = "reading this clock is slow: boot with clocksource=tsc, or use only samples above 10 ms"
    yield Check(name="clock source", found=text, read=f"/{path}", advice=advice if slow else "")


def _gpus(machine: Machine) -> Iterator[Check]:
    query = ("nvidia-smi", "--format=csv,noheader", "--query-gpu=name,utilization.gpu,persistence_mode")
    gpus = machine.run(query)
    if gpus is None:
        return
    for line in gpus.strip().splitlines():
        name, _, rest = line.partition(", ")
        use, _, persistence = rest.partition(", ")
        advice = "the driver unloads between runs: sudo nvidia-smi -pm 1" if persistence == "Disabled" else ""
        yield Check(name="GPU", found=f"{name}, {use} in use", read="nvidia-smi --query-gpu", advice=advice)
    apps = machine.run(
        ("nvidia-smi", "--format=csv,noheader", "--query-compute-apps=pid,process_name,used_memory")
    )
    others = (apps or "").strip().splitlines()
    yield Check(
        name="other GPU users",
        found="; ".join(others) or "none",
        read="nvidia-smi --query-compute-apps",
        advice="they use the device during samples: wait for them, or use another device" if others else "",
    )


CHECKS: tuple[Callable[[Machine], Iterator[Check]], ...] = (
    _versions,
    _governor,
    _turbo,
    _load,
    _threads,
    _quota,
    _memory,
    _huge_pages,
    _clock,
    _gpus,
)
