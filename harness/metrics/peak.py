"""The most that this device does in the candidates' precision: as promised, and as measured here (FLOP/s).

``data_sheet_peak_flop_per_s`` is from ``harness.peaks``; ``measured_peak_flop_per_s``
the best of several large matrix products, about 0.1 s in all, with
``measured_peak_size`` rows and columns. A small product on a slow processor
stays below what a larger one would reach: the size is there to judge by.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable

import torch

from harness.metrics import WHOLE, ByVariant, Ended
from harness.peaks import data_sheet_peak
from harness.precision import Precision, precision

WHEN = "end"
BUDGET_S = 0.1
SIZES = {"cuda": (4096, 8192), "cpu": (256, 512, 1024, 2048)}


def measure(ended: Ended) -> ByVariant:
    kind = precision(ended.job.dtype, ended.device.type)
    numbers: dict[str, float | int | str | bool | None] = {}
    if ended.device.type == "cuda":
        promised = data_sheet_peak(torch.cuda.get_device_name(ended.device))
        numbers["data_sheet_peak_flop_per_s"] = promised.flop_per_s(unit_of(kind)) if promised else None
        numbers["data_sheet"] = promised.source if promised else None
    rate, size = measured(kind, ended.device, ended.synchronise)
    numbers["measured_peak_flop_per_s"] = rate
    numbers["measured_peak_size"] = size
    return {WHOLE: numbers}


def unit_of(kind: Precision) -> str:
    """Which of a data sheet's rates belongs to the matrix products of this precision."""
    if kind.lowest is torch.float32 and kind.tf32:
        return "tf32"
    return str(kind.lowest).removeprefix("torch.")


def measured(
    kind: Precision,
    device: torch.device,
    synchronise: Callable[[], None],
    clock: Callable[[], float] = time.perf_counter,
) -> tuple[float, int]:
    """The best rate (FLOP/s) of products of square matrices, and the size that gave it.

    Sizes rise as long as one more product is expected to end within the budget.
    """
    began, best, best_size, last_s = clock(), 0.0, 0, 0.0
    sizes = SIZES.get(device.type, SIZES["cpu"])
    with torch.no_grad(), kind.surroundings():
        for place, size in enumerate(sizes):
            growth = (size / sizes[place - 1]) ** 3 if place else 0.0
            if place and clock() - began + 2 * growth * last_s > BUDGET_S:
                break
            matrix = torch.randn(size, size, device=device).to(kind.lowest)
            times = [math.inf]
            matrix @ matrix  # the first call of a size chooses a kernel
            synchronise()
            while len(times) < 10 and (len(times) < 3 or clock() - began + times[-1] < BUDGET_S):
                start = clock()
                matrix @ matrix
                synchronise()
                times.append(clock() - start)
            last_s = min(times)
            if 2 * size**3 / last_s > best:
                best, best_size = 2 * size**3 / last_s, size
    return best, best_size
