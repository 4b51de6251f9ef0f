"""``--cold-cache``: every timed step finds its data in memory, not in the device's last cache.

A buffer of twice the size of the cache is written before each sample (as nvbench and Triton's ``do_bench``
do). A sample is then one step, so the time of a short step has the cost of its submission.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from harness.devices import of

UNKNOWN = 1 << 28  # bytes, where the size of the cache is not known: more than any device has


def flusher(device: torch.device) -> Callable[[], object]:
    """A function that writes over the last cache of ``device``. The loop waits before it reads its clock."""
    size = of(device).cache_bytes() or UNKNOWN // 2
    buffer = torch.empty(2 * size // 4, dtype=torch.int32, device=device)
    return buffer.zero_
