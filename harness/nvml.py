"""The NVIDIA driver's own readings of a device, with the package ``nvidia-ml-py`` (extra ``nvidia``)."""

from __future__ import annotations

import importlib
from typing import Any

import torch

# why the clock is below its maximum (bits of NVML's "clocks event reasons"); idle is no reason to worry
THROTTLE_REASONS = {
    0x002: "set application clocks",
    0x004: "power cap",
    0x008: "hardware slowdown",
    0x010: "synchronised boost",
    0x020: "software temperature limit",
    0x040: "hardware temperature limit",
    0x080: "external power brake",
}


class Gpu:
    """One device. Raises what NVML raises; its version decides which readings there are."""

    def __init__(self, nvml: Any, handle: Any) -> None:
        self._nvml = nvml
        self._handle = handle

    def clock_mhz(self) -> int:
        """The present clock of the multiprocessors."""
        return int(self._nvml.nvmlDeviceGetClockInfo(self._handle, self._nvml.NVML_CLOCK_SM))

    def throttle_reasons(self) -> tuple[str, ...]:
        bits = int(self._nvml.nvmlDeviceGetCurrentClocksThrottleReasons(self._handle))
        return tuple(reason for bit, reason in THROTTLE_REASONS.items() if bits & bit)

    def energy_j(self) -> float:
        """What the device has used since the driver was loaded (J); it is updated about every 100 ms."""
        return int(self._nvml.nvmlDeviceGetTotalEnergyConsumption(self._handle)) / 1e3


def gpu_of(device: torch.device) -> Gpu | None:
    """The device's readings. None without the package, for other makes, and on a CPU."""
    if device.type != "cuda" or torch.version.cuda is None:
        return None
    try:
        nvml: Any = importlib.import_module("pynvml")
    except ImportError:
        return None
    try:
        nvml.nvmlInit()
        # by its own number: CUDA may show the devices under other ones
        uuid = torch.cuda.get_device_properties(device).uuid
        return Gpu(nvml, nvml.nvmlDeviceGetHandleByUUID(f"GPU-{uuid}"))
    except (nvml.NVMLError, AttributeError):
        return None
