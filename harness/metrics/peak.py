"""Peak rates of the device in the candidates' precision: from the data sheet, and measured (FLOP/s).

``data_sheet_peak_flop_per_s`` is from ``harness.hardware.peaks``. ``measured_peak_flop_per_s`` is the best of
several large matrix products, which take about 0.1 s, with ``measured_peak_size`` rows and columns. The size
is recorded because a small product, as on a slow processor, does not reach the rate of a larger one.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from harness.declared import CANDIDATE, SIDES, TERA, WORK, Column, Metric, ratio
from harness.devices import of
from harness.hardware.peaks import data_sheet_peak
from harness.metrics import WHOLE, ByVariant, Ended
from harness.schema import Scalar

if TYPE_CHECKING:
    import torch

    from harness.precision import Precision

WHEN = "end"
PROMISED, MEASURED = "data_sheet_peak_flop_per_s", "measured_peak_flop_per_s"
METRICS = (
    Metric(PROMISED, "FLOP/s", "the device's peak in the candidates' precision, from the data sheet"),
    Metric("data_sheet", "text", "the source of the data sheet's peak"),
    Metric(
        MEASURED,
        "FLOP/s",
        "the best of several large matrix products in the candidates' precision",
        limit=True,
    ),
    Metric("measured_peak_size", "", "rows and columns of that product"),
    Metric(
        "measured_peak_tflop_per_s",
        "TFLOP/s",
        "the measured peak: the best of all records of the device",
        derive=lambda seen: ratio(seen.best.get(MEASURED), TERA),
        group=WORK,
    ),
    Metric(
        "share_of_data_sheet",
        "share",
        "share of the data sheet's peak (MFU)",
        sides=SIDES,
        derive=lambda seen: seen.share("flops_per_step", seen.number(PROMISED)),
        group=WORK,
    ),
    Metric(
        "share_of_measured",
        "share",
        "share of the measured peak (MFU); not for eager if it runs in another precision",
        sides=SIDES,
        derive=lambda seen: seen.share("flops_per_step", seen.best.get(MEASURED)),
        group=WORK,
        columns=(Column("mfu", "MFU\nmeasured", CANDIDATE, operations_only=True),),
    ),
)
BUDGET_S = 0.1
SIZES, SIZES_ACCELERATED = (256, 512, 1024, 2048), (4096, 8192)


def measure(ended: Ended) -> ByVariant:
    from harness.precision import precision

    kind = precision(ended.job.dtype, ended.device.type)
    rate, size = measured(kind, ended.device, ended.synchronize)
    numbers: dict[str, Scalar] = {MEASURED: rate, "measured_peak_size": size}
    name = of(ended.device).model()
    if name is not None:
        sheet = data_sheet_peak(name)
        numbers[PROMISED] = sheet.flop_per_s(unit_of(kind)) if sheet else None
        numbers["data_sheet"] = sheet.source if sheet else None
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
            if place and clock() - began + 2 * growth * last_s > BUDGET_S:
                break
            matrix = torch.randn(size, size, device=device).to(kind.lowest)
            times = [math.inf]
            matrix @ matrix  # the first call of a size chooses a kernel
            synchronize()
            while len(times) < 10 and (len(times) < 3 or clock() - began + times[-1] < BUDGET_S):
                start = clock()
                matrix @ matrix
                synchronize()
                times.append(clock() - start)
            last_s = min(times)
            if 2 * size**3 / last_s > best:
                best, best_size = 2 * size**3 / last_s, size
    return best, best_size
