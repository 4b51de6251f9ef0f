"""Checks of the machine's settings that influence timings, each with its source and advice."""

from __future__ import annotations

import os
import platform
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from harness.hardware.cpus import usable_cpus
from harness.hardware.installed import missing_for_triton
from harness.loading.toml_file import read_toml
from runner.labels import counted

GIB = 1 << 30
BUSY = 0.1  # load for each CPU
LEAST_MEMORY = 0.1  # share that is available
CGROUP = "sys/fs/cgroup"
NVIDIA = ("nvidia-smi", "--format=csv,noheader")


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """The machine to check. ``run`` returns the output of a command, or None if the command failed."""

    root: Path
    physical_cores: int | None
    run: Callable[[Sequence[str]], str | None]
    environment: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))
    cpus: int = field(default_factory=lambda: len(usable_cpus()))

    def text(self, pattern: str) -> str | None:
        """The different texts of these files, stripped. None if no file can be read."""
        texts = set()
        for path in self.root.glob(pattern):
            try:
                texts.add(path.read_text(encoding="utf-8", errors="replace").strip())
            except OSError:
                continue
        return ", ".join(sorted(texts)) if texts else None


def this_machine() -> Machine:
    """The machine that this program runs on."""
    import psutil

    return Machine(root=Path("/"), physical_cores=psutil.cpu_count(logical=False), run=_output)


def _output(command: Sequence[str]) -> str | None:
    """The output of a command. None if the command does not exist or fails."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout


@dataclass(frozen=True, slots=True)
class Check:
    """A result, where it was read, and what to change ("" if nothing is wrong or the state is unknown)."""

    name: str
    state: str
    read: str
    advice: str = ""


def _file(name: str, rule: Mapping[str, Any], machine: Machine) -> Iterator[Check]:
    """A check of ``machine.toml``. Of ``always [madvise] never``, the chosen word is shown."""
    path, text = rule["read"], machine.text(rule["read"])
    if text is not None:
        chosen = text.partition("[")[2].partition("]")[0] or text
        shown = rule.get("means", {}).get(chosen, chosen)
        bad = shown in rule["bad"] if "bad" in rule else shown not in rule["good"]
        yield Check(name, shown, f"/{path}", rule["advice"].format(read=path) if bad else "")
    elif "missing" in rule:
        yield Check(name, rule["missing"], f"/{path}")


def _versions(_: Machine) -> Iterator[Check]:
    yield Check("Python", platform.python_version(), "this interpreter")
    yield Check("system", platform.platform(), "uname")


def _load(machine: Machine) -> Iterator[Check]:
    text = machine.text("proc/loadavg")
    if text is None:
        return
    load = float(text.split()[0])
    advice = "other processes take CPU time from the samples: end them, or wait (top shows them)"
    state = f"{load:g} in the last minute, on {counted(machine.cpus, 'CPU')}"
    yield Check("load", state, "/proc/loadavg", advice if load > BUSY * machine.cpus else "")


def _threads(machine: Machine) -> Iterator[Check]:
    cores = min(machine.cpus, machine.physical_cores or machine.cpus)
    state = f"{machine.cpus} usable, {machine.physical_cores or 'unknown'} physical cores"
    yield Check("CPUs", state, "sched_getaffinity, /proc/cpuinfo")
    text = machine.environment.get("OMP_NUM_THREADS")
    if text is None:
        advice = f"two threads on one core slow each other: --threads={cores}" if machine.cpus > cores else ""
        yield Check("threads", "torch's choice", "OMP_NUM_THREADS is not set", advice)
        return
    # OMP_NUM_THREADS may be a list, one number for each level of nesting
    first = text.split(",")[0].strip()
    advice = f"OMP_NUM_THREADS={text} is not a number of threads: unset it, or use --threads"
    if first.isdigit():
        too_many = int(first) > cores
        advice = (
            f"more threads than the {counted(cores, 'usable core')}: --threads={cores}" if too_many else ""
        )
    yield Check("threads", text, "OMP_NUM_THREADS", advice)


def _quota(machine: Machine) -> Iterator[Check]:
    """Reads cpu.max of cgroup v2 (``200000 100000`` or ``max 100000``), else the files of cgroup v1."""
    path = f"{CGROUP}/cpu.max"
    text = machine.text(path)
    if text is None:
        path = f"{CGROUP}/cpu/cpu.cfs_quota_us"
        quota, period = machine.text(path), machine.text(f"{CGROUP}/cpu/cpu.cfs_period_us")
        text = f"{'max' if quota == '-1' else quota} {period}" if quota and period else None
    if text is None:
        return
    quota_us, _, period_us = text.partition(" ")
    if quota_us == "max":
        yield Check("CPU quota", "none", f"/{path}")
        return
    allowed = int(quota_us) / int(period_us or 100_000)
    advice = f"above the quota all threads are stopped: --threads={max(1, int(allowed))}, or raise the quota"
    yield Check(
        "CPU quota",
        f"{allowed:g} CPU{'s' * (allowed != 1)}",
        f"/{path}",
        advice if allowed < machine.cpus else "",
    )


def _memory(machine: Machine) -> Iterator[Check]:
    path = "proc/meminfo"
    lines = (line.partition(":") for line in (machine.text(path) or "").splitlines())
    sizes = {name: int(value.split()[0]) * 1024 / GIB for name, _, value in lines if value.split()}
    if "MemTotal" not in sizes or "MemAvailable" not in sizes:
        return
    total, available = sizes["MemTotal"], sizes["MemAvailable"]
    advice = "little memory is available: end other processes, or use --max-memory"
    little = available < LEAST_MEMORY * total
    yield Check(
        "memory", f"{available:.1f} of {total:.1f} GiB available", f"/{path}", advice if little else ""
    )
    swap = sizes.get("SwapTotal", 0)
    used = swap - sizes.get("SwapFree", 0)
    advice = "reading a page from disk takes milliseconds: sudo swapoff -a, if enough memory is free"
    yield Check("swap", f"{used:.1f} of {swap:.1f} GiB used", f"/{path}", advice if used else "")


def _gpus(machine: Machine) -> Iterator[Check]:
    gpus = machine.run((*NVIDIA, "--query-gpu=name,utilization.gpu,persistence_mode"))
    if gpus is None:
        return
    for line in gpus.strip().splitlines():
        name, use, persistence, *_ = (*line.split(", "), "", "")
        advice = "the driver unloads between runs: sudo nvidia-smi -pm 1" if persistence == "Disabled" else ""
        yield Check("GPU", f"{name}, {use} in use", "nvidia-smi --query-gpu", advice)
    if missing := missing_for_triton():
        yield Check("Triton", "cannot build its launcher", "PATH, sysconfig", f"it needs {missing}")
    apps = machine.run((*NVIDIA, "--query-compute-apps=pid,process_name,used_memory")) or ""
    others = "; ".join(apps.strip().splitlines())
    advice = "they use the device during samples: wait for them, or use another device" if others else ""
    yield Check("other GPU users", others or "none", "nvidia-smi --query-compute-apps", advice)


CHECKS: tuple[tuple[str, Callable[[Machine], Iterator[Check]]], ...] = (
    ("versions", _versions),
    ("load", _load),
    ("threads", _threads),
    ("CPU quota", _quota),
    ("memory", _memory),
    ("GPU", _gpus),
)


def checked(machine: Machine) -> Iterator[Check]:
    """The results of all checks. A check that fails reports its error, and the others continue."""
    rules = read_toml(Path(__file__).with_suffix(".toml")).items()
    files: list[tuple[str, Callable[[Machine], Iterator[Check]]]] = [
        (name, partial(_file, name, rule)) for name, of_name in rules for rule in of_name
    ]
    for name, check in (*CHECKS[:-1], *files, CHECKS[-1]):
        try:
            yield from check(machine)
        except (OSError, ValueError, ArithmeticError) as error:
            yield Check(name, f"could not be read ({error})", "")
