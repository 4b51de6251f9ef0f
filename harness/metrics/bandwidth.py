"""``measured_bandwidth_bytes_per_s``: how fast this device's memory is, read and written bytes together.

The best of several copies of 64 MiB (1 GiB on CUDA), under 0.2 s in all.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import torch

from harness.metrics import WHOLE, ByVariant, Ended

WHEN = "end"
BUDGET_S = 0.15
COPIED_BYTES = {"cuda": 1 << 30, "cpu": 1 << 26}  # more than the caches hold
MOST_COPIES = 10


def measure(ended: Ended) -> ByVariant:
    size = COPIED_BYTES.get(ended.device.type, COPIED_BYTES["cpu"])
    rate = bandwidth(size, ended.device, ended.synchronise)
    return {WHOLE: {"measured_bandwidth_bytes_per_s": rate}}


def bandwidth(
    size: int,
    device: torch.device,
    synchronise: Callable[[], None],
    clock: Callable[[], float] = time.perf_counter,
) -> float:
    """Bytes/s, read and written, of the fastest copy of ``size`` bytes from one place to another."""
    source = torch.ones(size, dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    target.copy_(source)  # the pages of both are there now
    synchronise()
    began, times = clock(), list[float]()
    while len(times) < 3 or (len(times) < MOST_COPIES and clock() - began < BUDGET_S):
        start = clock()
        target.copy_(source)
        synchronise()
        times.append(clock() - start)
    return 2 * size / min(times)
