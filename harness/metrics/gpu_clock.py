"""The GPU's clock (MHz) and why it was held back, read right after each batch of timed rounds.

The device has then just been busy. NVIDIA only, with ``nvidia-ml-py`` installed.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from harness.nvml import gpu_of
from harness.schema import Scalar

WHEN = "rounds"


@contextmanager
def observe(device: torch.device, numbers: dict[str, Scalar]) -> Iterator[None]:
    gpu = gpu_of(device)
    yield
    if gpu is None:
        return
    clock, reasons = gpu.clock_mhz(), gpu.throttle_reasons()
    lowest, highest = numbers.get("gpu_clock_min_mhz"), numbers.get("gpu_clock_max_mhz")
    numbers["gpu_clock_min_mhz"] = min(clock, lowest) if isinstance(lowest, int) else clock
    numbers["gpu_clock_max_mhz"] = max(clock, highest) if isinstance(highest, int) else clock
    earlier = str(numbers.get("gpu_throttle_reasons") or "")
    everything = dict.fromkeys([*(part for part in earlier.split("; ") if part), *reasons])
    numbers["gpu_throttle_reasons"] = "; ".join(everything)
