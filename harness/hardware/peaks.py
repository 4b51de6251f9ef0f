"""The vendors' peak rates of dense matrix products. To add a device, add an entry to ``PEAKS``.

NVIDIA's data sheets often print the rate with 2:4 sparsity, which is twice the dense rate; the rates below
are dense. float32 is without TF32. A CPU has no such sheet: its rate is computed.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from harness.hardware.cpus import cores_of, first_cpu, text_of, usable_cpus, widest_vectors


@dataclass(frozen=True, slots=True)
class Peak:
    """``device``: a pattern of torch's name of the device. Rates in TFLOP/s; None: not supported."""

    device: str
    float32: float
    tf32: float | None
    bfloat16: float | None
    float16: float | None
    source: str

    def flop_per_s(self, precision: str) -> float | None:
        """The rate (FLOP/s) in "float32", "tf32", "bfloat16" or "float16"; None for any other."""
        rate = getattr(self, precision) if precision in RATES else None
        return rate * 1e12 if rate is not None else None


RATES = ("float32", "tf32", "bfloat16", "float16")
FMA_UNITS = 2
LARGEST_KHZ = "sys/devices/system/cpu/cpu0/cpufreq/cpuinfo_max_freq"
SLICE = re.compile(r"\bMIG\b")

# the first match counts, so a more specific name stands before a shorter one
PEAKS = (
    Peak(r"\bH200 NVL", 60, 417.5, 835.5, 835.5, "NVIDIA H200 Tensor Core GPU data sheet, H200 NVL"),
    Peak(r"\bH200", 67, 494.5, 989.5, 989.5, "NVIDIA H200 Tensor Core GPU data sheet, H200 SXM"),
    Peak(r"H100 NVL", 60, 417.5, 835.5, 835.5, "NVIDIA H100 Tensor Core GPU data sheet, H100 NVL"),
    Peak(r"H100 PCIe", 51, 378, 756.5, 756.5, "NVIDIA H100 Tensor Core GPU data sheet, H100 PCIe"),
    Peak(r"\bH100", 67, 494.5, 989.5, 989.5, "NVIDIA H100 Tensor Core GPU data sheet, H100 SXM"),
    Peak(r"\bA100", 19.5, 156, 312, 312, "NVIDIA A100 Tensor Core GPU data sheet"),
    Peak(r"L40S", 91.6, 183, 362, 362, "NVIDIA L40S data sheet"),
    Peak(r"\bL4\b", 30.3, 60, 121, 121, "NVIDIA L4 Tensor Core GPU data sheet"),
    Peak(r"\bA10\b", 31.2, 62.5, 125, 125, "NVIDIA A10 Tensor Core GPU data sheet"),
    Peak(r"V100-PCIE", 14, None, None, 112, "NVIDIA V100 Tensor Core GPU data sheet, PCIe"),
    Peak(r"V100(?!S)", 15.7, None, None, 125, "NVIDIA V100 Tensor Core GPU data sheet, SXM2"),
    Peak(r"\bT4\b", 8.1, None, None, 65, "NVIDIA T4 data sheet"),
    # GeForce cards: the rates with float32 accumulation, which torch uses
    Peak(r"RTX 4090(?! (D|Laptop))", 82.6, 82.6, 165.2, 165.2, "NVIDIA Ada GPU architecture white paper"),
    Peak(r"RTX 3090(?! Ti)", 35.6, 35.6, 71, 71, "NVIDIA Ampere GA102 GPU architecture white paper"),
    Peak(r"MI300X", 163.4, 653.7, 1307.4, 1307.4, "AMD Instinct MI300X accelerator data sheet"),
)


def data_sheet_peak(device_name: str) -> Peak | None:
    """The entry for a device with this name in torch; None if there is none, for instance for a CPU.

    A part of a device (MIG) has none, because the data sheets have the rates of whole devices.
    """
    if SLICE.search(device_name):
        return None
    return next((peak for peak in PEAKS if re.search(peak.device, device_name)), None)


def processor_peak(threads: int, root: Path = Path("/")) -> Peak | None:
    """cores x clock x FMA width of an x86 processor in float32; None without AVX2 or a known clock.

    Each core is taken to have two FMA units of the full width, as those of servers have, and the clock to be
    the largest that the system names, else the present one.
    """
    cpu = first_cpu(root)
    widest, khz = widest_vectors(cpu), text_of(root / LARGEST_KHZ)
    hz = float(khz) * 1e3 if khz else float(cpu.get("cpu MHz", 0)) * 1e6
    if widest is None or not hz:
        return None
    _, floats = widest
    cores = min(threads, len(cores_of(usable_cpus(), root)))
    source = (
        f"cores x clock x FMA width: {cores} x {hz / 1e9:.2f} GHz x {FMA_UNITS} units x {floats} x 2 FLOP"
    )
    rate = cores * hz * FMA_UNITS * floats * 2 / 1e12
    return Peak(device="", float32=rate, tf32=None, bfloat16=None, float16=None, source=source)
