"""The vendors' peak rates of dense matrix products. To add a device, add an entry to ``PEAKS``.

NVIDIA's data sheets often print the rate with 2:4 sparsity, which is twice the dense rate; the rates below
are dense. float32 is without TF32.
"""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Peak:
    """``device``: a pattern of torch's name of the device. Rates in TFLOP/s; None: not supported."""

    device: str
    float32: float
    tf32: float | None
    bfloat16: float | None
    float16: float
    source: str

    def flop_per_s(self, precision: str) -> float | None:
        """The rate (FLOP/s) in "float32", "tf32", "bfloat16" or "float16"; None for any other."""
        rate = getattr(self, precision) if precision in RATES else None
        return rate * 1e12 if rate is not None else None


RATES = ("float32", "tf32", "bfloat16", "float16")
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
    Peak(r"V100", 15.7, None, None, 125, "NVIDIA V100 Tensor Core GPU data sheet, SXM2"),
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
