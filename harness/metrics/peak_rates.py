"""The limits of the device: peak rates in the candidates' precision (FLOP/s), and its memory's bandwidth.

``data_sheet_peak_flop_per_s`` is from ``harness.hardware.peaks``, which computes it for a CPU.
``measured_peak_flop_per_s`` is the best of several large matrix products, which take about 0.1 s, with
``measured_peak_size`` rows and columns. The size is recorded because a small product, as on a slow processor,
does not reach the rate of a larger one.
``measured_bandwidth_bytes_per_s`` is the best of several copies of 64 MiB (1 GiB on a GPU), which take less
than 0.2 s, read and written bytes together.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from harness.declared import GIGA, TERA, Seen, ratio
from harness.devices import of
from harness.hardware.peaks import data_sheet_peak, processor_peak
from harness.metrics import ByVariant, Ended, declared_beside
from harness.schema import WHOLE, Scalar

if TYPE_CHECKING:
    import torch

    from harness.precision import Precision


def _intensity(seen: Seen) -> float | None:
    return ratio(seen.number("flops_per_step"), seen.number("bytes_per_step"))


def _roof(seen: Seen) -> float | None:
    """The roofline at this intensity (FLOP/s): the lower of the device's two limits."""
    peak, bandwidth, intensity = seen.best.get(MEASURED), seen.best.get(BANDWIDTH), _intensity(seen)
    return min(peak, bandwidth * intensity) if peak and bandwidth and intensity else None


WHEN = "end"
PROMISED, MEASURED = "data_sheet_peak_flop_per_s", "measured_peak_flop_per_s"
BANDWIDTH = "measured_bandwidth_bytes_per_s"
METRICS = declared_beside(
    __file__,
    measured_peak_tflop_per_s=lambda seen: ratio(seen.best.get(MEASURED), TERA),
    measured_bandwidth_gb_per_s=lambda seen: ratio(seen.best.get(BANDWIDTH), GIGA),
    share_of_data_sheet=lambda seen: seen.share("flops_per_step", seen.number(PROMISED)),
    share_of_measured=lambda seen: seen.share("flops_per_step", seen.best.get(MEASURED)),
    share_of_bandwidth=lambda seen: seen.share("bytes_per_step", seen.best.get(BANDWIDTH)),
    flop_per_byte=_intensity,
    roof_tflop_per_s=lambda seen: ratio(_roof(seen), TERA),
    share_of_roof=lambda seen: seen.share("flops_per_step", _roof(seen)),
)
PEAK_S, BANDWIDTH_S = 0.1, 0.15
SIZES, SIZES_ACCELERATED = (256, 512, 1024, 2048), (4096, 8192)
COPIED_BYTES, COPIED_BYTES_ACCELERATED = 1 << 26, 1 << 30  # larger than the caches
LASTING_S = 0.02  # of a sample of products on an accelerator
FEWEST, MOST = 3, 10  # products of one size, and copies


def measure(ended: Ended) -> ByVariant:
    from torch import get_num_threads

    from harness.precision import precision

    device, kind = of(ended.device), precision(ended.job.dtype, ended.device.type)
    rate, size = measured(kind, ended.device, ended.synchronize)
    numbers: dict[str, Scalar] = {MEASURED: rate, "measured_peak_size": size}
    sheet = data_sheet_peak(device.model() or "") if device.accelerated else processor_peak(get_num_threads())
    numbers[PROMISED] = sheet.flop_per_s(unit_of(kind)) if sheet else None
    numbers["data_sheet"] = sheet.source if sheet else None
    copied = COPIED_BYTES_ACCELERATED if device.accelerated else COPIED_BYTES
    numbers[BANDWIDTH] = bandwidth(copied, ended.device, ended.synchronize)
    return {WHOLE: numbers}


def unit_of(kind: Precision) -> str:
    """The name of the data sheet's rate for matrix products of this precision."""
    if str(kind.lowest) == "torch.float32" and kind.tf32:
        return "tf32"
    return str(kind.lowest).removeprefix("torch.")


def measured(
    kind: Precision,
    device: torch.device,
    synchronize: Callable[[], None],
    clock: Callable[[], float] = time.perf_counter,
) -> tuple[float, int]:
    """The best rate (FLOP/s) of products of square matrices, and the size that gave it.

    Sizes increase while the next size is expected to fit into the budget.
    """
    import torch

    began, best, best_size, last_s = clock(), 0.0, 0, 0.0
    sizes = SIZES_ACCELERATED if of(device).accelerated else SIZES
    with torch.no_grad(), kind.surroundings():
        for place, size in enumerate(sizes):
            growth = (size / sizes[place - 1]) ** 3 if place else 0.0
            if place and clock() - began + 2 * growth * last_s > PEAK_S:
                break
            matrix = torch.randn(size, size, device=device).to(kind.lowest)
            matrix @ matrix  # the first call of a size chooses a kernel
            if of(device).accelerated:  # and loads it, which may take longer than all calls
                synchronize()
                began = clock()
            lasting_s = LASTING_S if of(device).accelerated else 0.0
            product = partial(torch.matmul, matrix, matrix)
            last_s = fastest_s(product, synchronize, clock, began + PEAK_S, lasting_s)
            if 2 * size**3 / last_s > best:
                best, best_size = 2 * size**3 / last_s, size
    return best, best_size


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
    return 2 * size / fastest_s(partial(target.copy_, source), synchronize, clock, clock() + BANDWIDTH_S)


def fastest_s(
    work: Callable[[], object],
    synchronize: Callable[[], None],
    clock: Callable[[], float],
    until: float,
    lasting_s: float = 0.0,
) -> float:
    """Seconds of a call, in the fastest of ``FEWEST`` to ``MOST`` samples.

    Only the fewest may end after ``until``. ``lasting_s``: a sample has as many calls as last so long, so
    that the wait at its end hardly counts.
    """
    synchronize()
    times: list[float] = []
    calls = 1
    while len(times) < FEWEST or (len(times) < MOST and clock() + calls * times[-1] < until):
        start = clock()
        for _ in range(calls):
            work()
        synchronize()
        times.append((clock() - start) / calls)
        calls = max(1, math.ceil(lasting_s / times[-1])) if lasting_s else 1
    return min(times)
