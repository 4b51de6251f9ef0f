"""The GPU's clock (MHz) and the reasons of throttling, read after samples of the timed rounds, by variant.

A reading takes place right after a sample, outside its timed part: an idle device lowers its clock within
milliseconds. A round is repeated if the clock after one of its samples is more than ``DROP`` below the
variant's usual clock (nvbench discards such samples, too). NVIDIA only, with ``nvidia-ml-py`` installed.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from statistics import fmean, median
from typing import TYPE_CHECKING

from harness.hardware.nvml import POWER_CAP, gpu_of
from harness.metrics import declared_beside, of_variant
from harness.schema import Scalar

if TYPE_CHECKING:
    import torch

WHEN = "rounds"
METRICS = declared_beside(__file__)
DROP = 0.1
LEAST = 3  # readings of a variant, before one is judged


@contextmanager
def observe(device: torch.device, numbers: dict[str, Scalar]) -> Iterator[Callable[[str], bool] | None]:
    gpu = gpu_of(device)
    if gpu is None:
        yield None
        return
    clocks: dict[str, list[int]] = {}
    reasons: list[tuple[str, ...]] = []

    def read(variant: str) -> bool:
        clock, usual = gpu.clock_mhz(), clocks.setdefault(variant, [])
        usual.append(clock)
        with contextlib.suppress(Exception):  # a driver without the reasons still has the clock
            reasons.append(gpu.throttle_reasons())
        return len(usual) > LEAST and clock < (1 - DROP) * median(usual)

    yield read
    values = [clock for of_one in clocks.values() for clock in of_one]
    if values:
        numbers["gpu_clock_min_mhz"], numbers["gpu_clock_max_mhz"] = min(values), max(values)
        numbers["gpu_throttle_reasons"] = "; ".join(dict.fromkeys(why for each in reasons for why in each))
        numbers |= {of_variant(name, "gpu_clock_mhz"): fmean(of_one) for name, of_one in clocks.items()}
    if reasons:
        numbers["gpu_capped_share"] = fmean(POWER_CAP in each for each in reasons)
