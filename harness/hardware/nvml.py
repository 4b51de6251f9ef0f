"""Readings of the NVIDIA driver, through the package ``nvidia-ml-py`` (extra ``nvidia``)."""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from harness.schema import Scalar

if TYPE_CHECKING:
    import torch

POWER_CAP = "power cap"
# why the clock is below its maximum (bits of NVML's "clocks event reasons"), without the reason "idle"
THROTTLE_REASONS = {
    0x002: "set application clocks",
    0x004: POWER_CAP,
    0x008: "hardware slowdown",
    0x010: "synchronized boost",
    0x020: "software temperature limit",
    0x040: "hardware temperature limit",
    0x080: "external power brake",
}


class Gpu:
    """One device. Methods raise NVML's errors; an old driver does not support all readings."""

    def __init__(self, nvml: Any, handle: Any) -> None:
        self._nvml = nvml
        self._handle = handle

    def clock_mhz(self) -> int:
        """The present clock of the multiprocessors."""
        return int(self._nvml.nvmlDeviceGetClockInfo(self._handle, self._nvml.NVML_CLOCK_SM))

    def throttle_reasons(self) -> tuple[str, ...]:
        """Why the clock is below its maximum now. Old packages and drivers have only the older call."""
        try:
            bits = int(self._nvml.nvmlDeviceGetCurrentClocksEventReasons(self._handle))
        except (AttributeError, self._nvml.NVMLError):
            bits = int(self._nvml.nvmlDeviceGetCurrentClocksThrottleReasons(self._handle))
        return tuple(reason for bit, reason in THROTTLE_REASONS.items() if bits & bit)

    def power_w(self) -> float:
        return int(self._nvml.nvmlDeviceGetPowerUsage(self._handle)) / 1e3

    def facts(self) -> dict[str, Scalar]:
        """What tells one card of a model from another; None for what this card or driver does not tell."""
        nvml, handle = self._nvml, self._handle
        readings: dict[str, Callable[[], Scalar]] = {
            "gpu_clock_limit_mhz": lambda: int(nvml.nvmlDeviceGetMaxClockInfo(handle, nvml.NVML_CLOCK_SM)),
            "gpu_power_limit_w": lambda: int(nvml.nvmlDeviceGetEnforcedPowerLimit(handle)) / 1e3,
            "gpu_ecc": lambda: bool(nvml.nvmlDeviceGetEccMode(handle)[0]),
            "gpu_persistence": lambda: bool(nvml.nvmlDeviceGetPersistenceMode(handle)),
            "gpu_mig": lambda: bool(nvml.nvmlDeviceGetMigMode(handle)[0]),
        }
        facts: dict[str, Scalar] = dict.fromkeys(readings)
        for name, read in readings.items():
            with contextlib.suppress(AttributeError, nvml.NVMLError):
                facts[name] = read()
        return facts

    def energy_j(self) -> float:
        """Energy (J) since the driver was loaded; the driver updates it about every 100 ms."""
        return int(self._nvml.nvmlDeviceGetTotalEnergyConsumption(self._handle)) / 1e3


def gpu_of(device: torch.device) -> Gpu | None:
    """The device's readings. None without the package, and for devices that are not NVIDIA's."""
    gpu = readings_of(device)
    return gpu if isinstance(gpu, Gpu) else None


def readings_of(device: torch.device) -> Gpu | str:
    """The device's readings, or why there are none ("": the device is not NVIDIA's)."""
    import torch

    if device.type != "cuda" or torch.version.cuda is None:
        return ""
    try:
        nvml: Any = importlib.import_module("pynvml")
    except ImportError:
        return "nvidia-ml-py is not installed: pip install nvidia-ml-py"
    try:
        nvml.nvmlInit()
        # by UUID, because CUDA may number the devices in another order than NVML
        uuid = torch.cuda.get_device_properties(device).uuid
        return Gpu(nvml, nvml.nvmlDeviceGetHandleByUUID(f"GPU-{uuid}"))
    except (nvml.NVMLError, AttributeError) as error:
        return f"NVML does not answer: {type(error).__name__}: {error}"
