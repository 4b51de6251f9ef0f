"""The environment of a record: versions, device and settings, as one flat dict of scalars."""

from __future__ import annotations

import os
import platform
from functools import cache
from pathlib import Path

import torch

from harness import devices
from harness.backends.settings.in_force import set_from_outside
from harness.hardware.cpus import cpu_model, text_of, usable_cpus
from harness.hardware.installed import version_of
from harness.hardware.nvml import gpu_of, readings_of
from harness.precision import facts as facts_of_precision
from harness.schema import Scalar
from harness.worker import KIND, WHY_FRESH
from harness.worker.limits import GLIBC_SETTINGS

TF32_OVERRIDE, BLOCKING = "NVIDIA_TF32_OVERRIDE", "CUDA_LAUNCH_BLOCKING"
RECORDED_PREFIXES = (
    *("TORCH", "PYTORCH", "CUBLAS", "CUDNN", "CUDA_", TF32_OVERRIDE, "HIP", "HSA_"),
    *("OMP_", "MKL_", "KMP_", "ATEN_", "ONEDNN_", "DNNL_"),
    *("MALLOC_", "GLIBC_TUNABLES"),
)


def describe(device: torch.device) -> dict[str, Scalar]:
    """The facts of this process that can change a measured number."""
    variables = sorted(name for name in os.environ if name.startswith(RECORDED_PREFIXES))
    return {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "torch_git": torch.version.git_version,
        "platform": platform.platform(),
        "cpu": cpu_model(),
        "cpu_count": os.cpu_count(),
        "cpus_usable": len(usable_cpus()),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "threads": torch.get_num_threads(),
        "interop_threads": torch.get_num_interop_threads(),
        "device": str(device),
        "device_name": devices.of(device).model() or cpu_model(),
        **devices.of(device).facts(),
        **(gpu.facts() if (gpu := gpu_of(device)) is not None else {}),
        **library_versions(),
        "worker": os.environ.get(KIND, "fresh"),
        "compiler_settings": set_from_outside(),
        **facts_of_precision(),
        "allocator_preload": os.environ.get("LD_PRELOAD"),
        "allocator": _allocator(),
        **{f"env.{name}": os.environ[name] for name in variables},
    }


@cache
def library_versions() -> dict[str, Scalar]:
    return {name: version_of(name) for name in ("triton", "torchvision", "transformers", "timm", "numpy")}


def remarks_on_process(device: torch.device) -> tuple[str, ...]:
    """Sentences on this process and its device that a reader of its numbers must know."""
    said = [os.environ[WHY_FRESH]] if WHY_FRESH in os.environ else []
    override = os.environ.get(TF32_OVERRIDE)
    if override is not None:
        said.append(f"{TF32_OVERRIDE}={override} overrides torch's settings of TF32 in NVIDIA's libraries")
    if os.environ.get(BLOCKING, "0") != "0":
        said.append(f"{BLOCKING} is set: the host waits for every kernel, and all times are longer")
    if outside := set_from_outside():
        said.append(f"set outside of this program (variables, or the model's code): {outside}")
    why = readings_of(device)
    if isinstance(why, str) and why:
        said.append(f"no clocks, power limit or energy of the GPU ({why})")
    return tuple(said)


def _allocator(maps: str | Path = "/proc/self/maps") -> str | None:
    """The malloc of this process, from its loaded libraries; None if the system does not list them."""
    loaded = text_of(maps)
    system = "default" if GLIBC_SETTINGS.keys() <= os.environ.keys() else "system"
    named = [name for name in ("jemalloc", "tcmalloc") if f"lib{name}" in loaded]
    return (named or [system])[0] if loaded else None
