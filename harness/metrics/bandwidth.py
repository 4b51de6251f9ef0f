"""``measured_bandwidth_bytes_per_s``: bandwidth of the device's memory, read and written bytes together.

The best of several copies of 64 MiB (1 GiB on a GPU), which take less than 0.2 s.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from harness.declared import CANDIDATE, GIGA, SIDES, TERA, WORK, Column, Metric, Seen, ratio
from harness.devices import of
from harness.metrics import WHOLE, ByVariant, Ended

if TYPE_CHECKING:
    import torch


def _intensity(seen: Seen) -> float | None:
    return ratio(seen.number("flops_per_step"), seen.number("bytes_per_step"))


def _roof(seen: Seen) -> float | None:
    """The roofline at this intensity (FLOP/s): the lower of the device's two limits."""
    peak, bandwidth = seen.best.get("measured_peak_flop_per_s"), seen.best.get(BANDWIDTH)
    intensity = _intensity(seen)
    return min(peak, bandwidth * intensity) if peak and bandwidth and intensity else None


WHEN = "end"
BANDWIDTH = "measured_bandwidth_bytes_per_s"
METRICS = (
    Metric(
        BANDWIDTH,
        "bytes/s",
        "the best of several large copies in the device's memory, read and written bytes together",
        limit=True,
    ),
    Metric(
        "measured_bandwidth_gb_per_s",
        "GB/s",
        "the measured bandwidth: the best of all records of the device",
        derive=lambda seen: ratio(seen.best.get(BANDWIDTH), GIGA),
        group=WORK,
    ),
    Metric(
        "share_of_bandwidth",
        "share",
        "share of the measured bandwidth; above 1 if the data fits into caches",
        sides=SIDES,
        derive=lambda seen: seen.share("bytes_per_step", seen.best.get(BANDWIDTH)),
        group=WORK,
    ),
    Metric(
        "flop_per_byte",
        "FLOP/byte",
        "FLOPs per byte of eager's operations, without fusion: the step's place on the roofline",
        derive=_intensity,
        group=WORK,
    ),
    Metric(
        "roof_tflop_per_s",
        "TFLOP/s",
        "the roofline of the step: the lower of measured peak and measured bandwidth x flop_per_byte",
        derive=lambda seen: ratio(_roof(seen), TERA),
        group=WORK,
    ),
    Metric(
        "share_of_roof",
        "share",
        "share of the roofline; may exceed 1, because fused code moves fewer bytes",
        sides=SIDES,
        derive=lambda seen: seen.share("flops_per_step", _roof(seen)),
        group=WORK,
        columns=(
            Column(
                "roof", "of\nroof", CANDIDATE, or_else="candidate_share_of_bandwidth", operations_only=True
            ),
        ),
    ),
)
BUDGET_S = 0.15
COPIED_BYTES, COPIED_BYTES_ACCELERATED = 1 << 26, 1 << 30  # larger than the caches
MOST_COPIES = 10


def measure(ended: Ended) -> ByVariant:
    size = COPIED_BYTES_ACCELERATED if of(ended.device).accelerated else COPIED_BYTES
    rate = bandwidth(size, ended.device, ended.synchronize)
    return {WHOLE: {BANDWIDTH: rate}}


def bandwidth(
    size: int,
    device: torch.device,
    synchronize: Callable[[], None],
    clock: Callable[[], float] = time.perf_counter,
) -> float:
    """Bytes/s, read and written, of the fastest copy of ``size`` bytes."""
    import torch

    source = torch.ones(size, dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    target.copy_(source)  # makes the system map the pages of both
    synchronize()
    began, times = clock(), list[float]()
    while len(times) < 3 or (len(times) < MOST_COPIES and clock() - began < BUDGET_S):
        start = clock()
        target.copy_(source)
        synchronize()
        times.append(clock() - start)
    return 2 * size / min(times)
