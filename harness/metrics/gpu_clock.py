"""The GPU's clock (MHz) and the reasons of throttling, read between samples of the timed rounds.

A reading takes place right after a sample, outside its timed part, at most every ``EVERY_S`` seconds: an idle
device lowers its clock within milliseconds. NVIDIA only, with ``nvidia-ml-py`` installed.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from harness.declared import NOISE, Metric
from harness.hardware.nvml import gpu_of
from harness.schema import Scalar

if TYPE_CHECKING:
    import torch

WHEN = "rounds"


def _metric(name: str, unit: str, meaning: str, over_batches: str) -> Metric:
    return Metric(name, unit, meaning, group=NOISE, over_batches=over_batches)


METRICS = (
    _metric("gpu_clock_min_mhz", "MHz", "the lowest clock read between samples of the timed rounds", "min"),
    _metric("gpu_clock_max_mhz", "MHz", "the highest clock read between samples of the timed rounds", "max"),
    _metric("gpu_throttle_reasons", "text", "why the clock was below its maximum", "union"),
)
EVERY_S = 0.05


@contextmanager
def observe(device: torch.device, numbers: dict[str, Scalar]) -> Iterator[Callable[[], None] | None]:
    gpu = gpu_of(device)
    if gpu is None:
        yield None
        return
    clocks: list[int] = []
    reasons: dict[str, None] = {}
    next_s = 0.0

    def read() -> None:
        nonlocal next_s
        if time.monotonic() < next_s:
            return
        next_s = time.monotonic() + EVERY_S
        clocks.append(gpu.clock_mhz())
        with contextlib.suppress(Exception):  # a driver without the reasons still has the clock
            reasons.update(dict.fromkeys(gpu.throttle_reasons()))

    yield read
    with contextlib.suppress(Exception):  # what was read before stays
        read()
    if clocks:
        numbers["gpu_clock_min_mhz"], numbers["gpu_clock_max_mhz"] = min(clocks), max(clocks)
        numbers["gpu_throttle_reasons"] = "; ".join(reasons)
