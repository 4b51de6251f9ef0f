"""Seconds on a device before anything is measured: one line of JSON.

``wrong``: what does not work; ``slow``: the device is not sound, and what it measures would mislead.

    python -m tests.gpu.sanity cuda
"""

import json
import re
import sys
from importlib import import_module
from typing import Any

import torch

from harness import devices
from harness.hardware.cpus import cpu_model
from harness.hardware.installed import version_of
from harness.hardware.nvml import Gpu, readings_of
from harness.hardware.peaks import data_sheet_peak
from harness.metrics.peak_rates import bandwidth, measured
from harness.precision import precision

LEAST = 0.55  # of the data sheet's rate in bfloat16: 70 % of what a sound H200 reaches
LEAST_COPY = ((r"\bH200\b(?! NVL)", 3.0e12),)  # bytes/s, 70 % of what it reaches
TRIES = 3  # the first products raise the clock
LIBRARIES = ("triton", "transformers", "timm", "nvidia-ml-py", "numpy")


def seen(device: devices.Device) -> dict[str, Any]:
    """What the device says of itself and does; ``missing``: why it is not there."""
    why = device.why_missing()
    if why is not None:
        return {"missing": why}
    place, name, wrong = device.torch_device(), device.model() or cpu_model(), []
    for what, check in (("CUDA graph", _graph), ("Triton", _kernel)) if device.accelerated else ():
        try:
            works: bool | str = check(place)
        except Exception as error:
            works = f"{type(error).__name__}: {error}"
        wrong += [] if works is True else [f"{what}: {works}"]
    copy = bandwidth(1 << (30 if device.accelerated else 24), place, device.synchronize)
    kind, sheet = precision("bfloat16", device.type), data_sheet_peak(name)
    product = max(measured(kind, place, device.synchronize)[0] for _ in range(TRIES))
    limits = (
        ("products in bfloat16 reach", product, LEAST * (sheet.flop_per_s("bfloat16") or 0) if sheet else 0),
        ("a copy reaches", copy, next((rate for named, rate in LEAST_COPY if re.search(named, name)), 0)),
    )
    return {
        "name": name,
        "python": sys.version.split()[0],
        "torch": torch.__version__,
        **{library: version_of(library) for library in LIBRARIES},
        **device.facts(),
        **_readings(place),
        "copy_bytes_per_s": copy,
        "product_flop_per_s": product,
        "wrong": wrong,
        "slow": [
            f"{what} {rate / 1e12:.3g}e12/s, of at least {least / 1e12:.3g}e12: stopped"
            for what, rate, least in limits
            if rate < least
        ],
    }


def _graph(place: torch.device) -> bool:
    given = torch.ones(1 << 20, device=place)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = given * 2 + 1
    given.fill_(3)
    graph.replay()
    return bool((result == 7).all())


def _kernel(place: torch.device) -> bool:
    return bool(import_module("tests.gpu.kernel").works(place))  # here, because it needs Triton


def _readings(place: torch.device) -> dict[str, Any]:
    gpu = readings_of(place)
    if not isinstance(gpu, Gpu):
        return {"nvml": gpu}
    try:
        now = {"clock_mhz": gpu.clock_mhz(), "power_w": gpu.power_w(), "energy_j": gpu.energy_j()}
        return {**now, **gpu.facts()}
    except Exception as error:
        return {"nvml": f"{type(error).__name__}: {error}"}


if __name__ == "__main__":
    print(json.dumps(seen(devices.named(sys.argv[1]))))
