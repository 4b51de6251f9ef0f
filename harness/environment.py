"""Where the numbers come from: versions, device, settings. One flat dict of scalars."""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Callable
from importlib import metadata
from pathlib import Path

import torch

from harness.schema import Scalar
from harness.worker import KIND

RECORDED_PREFIXES = (
    *("TORCH", "PYTORCH", "CUBLAS", "CUDA_"),
    *("OMP_", "MKL_", "KMP_"),
    *("MALLOC_", "GLIBC_TUNABLES"),
)


def describe(device: torch.device) -> dict[str, Scalar]:
    """The environment of this process as far as it can change a number."""
    facts: dict[str, Scalar] = {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "torch_git": torch.version.git_version,
        "platform": platform.platform(),
        "cpu": _cpu_model(),
        "cpu_count": os.cpu_count(),
        "cpus_usable": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else None,
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "threads": torch.get_num_threads(),
        "interop_threads": torch.get_num_interop_threads(),
        "device": str(device),
        "device_name": _device_name(device),
        "cuda": torch.version.cuda,
        "cudnn": _cudnn_version() if device.type == "cuda" else None,
        "driver": _driver(device),
        **{name: _installed(name) for name in ("triton", "transformers", "timm", "numpy")},
        "worker": os.environ.get(KIND, "fresh"),  # or forked, from a process that has imported everything
        "matmul_precision": torch.get_float32_matmul_precision(),
        "allocator_preload": os.environ.get("LD_PRELOAD"),
        "allocator": _allocator(),
    }
    for name, value in sorted(os.environ.items()):
        if name.startswith(RECORDED_PREFIXES):
            facts[f"env.{name}"] = value
    return facts


def _cudnn_version() -> int | None:
    version: Callable[[], int | None] = torch.backends.cudnn.version
    return version()


def _driver(device: torch.device, version: Path = Path("/proc/driver/nvidia/version")) -> str | None:
    """The version of NVIDIA's kernel driver, where the job is on its device; None where it does not say."""
    if device.type != "cuda":
        return None
    try:
        found = re.search(r"\b\d{3,}\.\d+(\.\d+)?\b", version.read_text(errors="replace"))
    except OSError:
        return None
    return found[0] if found else None


def _installed(package: str) -> str | None:
    """The package's version by its own account, without importing it."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _device_name(device: torch.device) -> str:
    return torch.cuda.get_device_name(device) if device.type == "cuda" else _cpu_model()


def _allocator(maps: Path = Path("/proc/self/maps")) -> str | None:
    """Which malloc this process has, by what is loaded; None where the system does not tell."""
    try:
        loaded = maps.read_text(errors="replace")
    except OSError:
        return None
    return next((name for name in ("jemalloc", "tcmalloc") if f"lib{name}" in loaded), "default")


def _cpu_model() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()
