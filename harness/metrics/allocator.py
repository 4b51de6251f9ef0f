"""What the device's allocator did during the timed rounds. It should do nothing.

``allocator_retries``: how often a step found no memory, and the allocator had to free what it had cached and
ask again. Such a step waits for the device several times. ``device_allocations``: how often the allocator
asked the driver for memory, which also stops the device's work. Absent for devices that do not count.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from harness.declared import NOISE, Metric
from harness.devices import of
from harness.schema import Scalar

if TYPE_CHECKING:
    import torch

WHEN = "rounds"
METRICS = (
    Metric(
        "allocator_retries",
        "",
        "how often the device's allocator had to free its cache to find memory during the rounds",
        group=NOISE,
        over_batches="sum",
    ),
    Metric(
        "device_allocations",
        "",
        "how often the device's allocator asked the driver for memory during the rounds",
        group=NOISE,
        over_batches="sum",
    ),
)


@contextmanager
def observe(device: torch.device, numbers: dict[str, Scalar]) -> Iterator[None]:
    counted = of(device)
    counters = {
        "allocator_retries": counted.allocation_retries,
        "device_allocations": counted.device_allocations,
    }
    before = {name: read() for name, read in counters.items()}
    yield
    for name, read in counters.items():
        earlier, now = before[name], read()
        if earlier is not None and now is not None:
            numbers[name] = now - earlier
