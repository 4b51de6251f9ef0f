"""The published numbers of the studies, for comparison with ours."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

PRECISIONS = ("float32", "tf32", "amp_bfloat16", "amp_bfloat16+tf32")
MODES = ("eager", "script", "compile", "submodules")

TRAINING_TIME: Mapping[str, Mapping[tuple[str, str], str]] = {
    "CUDA 11.7": {
        ("TorchSharp 0.100.7", "float32"): "6:46",
        ("TorchSharp 0.100.7", "tf32"): "5:20",
        ("PyTorch 2.0.1", "float32"): "5:31",
        ("PyTorch 2.0.1", "tf32"): "5:27",
        ("PyTorch 2.0.1", "amp_bfloat16"): "4:28",
        ("PyTorch 2.0.1 + compile", "float32"): "4:04",
        ("PyTorch 2.0.1 + compile", "tf32"): "3:57",
        ("PyTorch 2.0.1 + compile", "amp_bfloat16"): "2:26",
    },
    "CUDA 12.1": {
        ("TorchSharp 0.100.7", "float32"): "4:53",
        ("TorchSharp 0.100.7", "tf32"): "4:51",
        ("PyTorch 2.1.0", "float32"): "4:22",
        ("PyTorch 2.1.0", "tf32"): "4:19",
        ("PyTorch 2.1.0", "amp_bfloat16"): "3:48",
        ("PyTorch 2.1.0 + TorchScript script", "float32"): "4:30",
        ("PyTorch 2.1.0 + compile", "float32"): "4:02",
        ("PyTorch 2.1.0 + compile", "tf32"): "3:57",
        ("PyTorch 2.1.0 + compile", "amp_bfloat16"): "2:30",
    },
}
"""Study A: minutes:seconds of complete training runs on one RTX 3070, by (row, precision)."""

REFERENCE = {"CUDA 11.7": "PyTorch 2.0.1", "CUDA 12.1": "PyTorch 2.1.0"}
"""Ratios are relative to the float32 time of these rows."""

ALSO_PUBLISHED = (
    "Also published: tf32 and bf16 autocast together, 4:40 eager and 2:30 compiled (torch 2.1, CUDA 11.8); "
    "submodules compiled one by one 5:17 and the whole model 5:13 where eager took 6:10."
)


def seconds_of(text: str) -> int:
    """``5:31`` as 331."""
    minutes, seconds = text.split(":")
    return 60 * int(minutes) + int(seconds)


def minutes_text(seconds: float) -> str:
    """``5:31``. Below a minute with tenths, ``0:07.4``, so that short runs can be distinguished."""
    if seconds < 60:
        tenths = round(seconds * 10)
        return f"{tenths // 600}:{tenths % 600 / 10:04.1f}"
    whole = round(seconds)
    return f"{whole // 60}:{whole % 60:02d}"


class Implementation(NamedTuple):
    """A row of study B's table on addition (an A100 with 40 GB)."""

    train_loss: float
    test_loss: float
    accuracy: float
    micros: float  # per example
    seconds: float


ADDITION: Mapping[tuple[str, float], Implementation] = {
    ("HuggingFaceGPT", 1e-3): Implementation(0.344, 0.367, 0.852, 15.1, 60.2),
    ("HuggingFaceGPT", 1e-4): Implementation(1.420, 1.431, 0.461, 15.2, 60.9),
    ("HuggingFaceGPT", 1e-2): Implementation(1.352, 1.385, 0.460, 15.5, 60.3),
    ("MLP", 1e-3): Implementation(0.036, 0.035, 1.000, 1.06, 2.2),
    ("MLP", 1e-4): Implementation(0.101, 0.108, 0.999, 1.11, 17.0),
    ("MLP", 1e-2): Implementation(0.001, 0.001, 1.000, 1.28, 1.3),
    ("NanoGPT", 1e-3): Implementation(1.365, 1.387, 0.460, 23.3, 62.0),
    ("NanoGPT", 1e-4): Implementation(1.728, 1.720, 0.412, 23.7, 60.7),
    ("NanoGPT", 1e-2): Implementation(0.117, 0.122, 0.956, 23.4, 60.1),
    ("TLTransformer", 1e-3): Implementation(1.382, 1.384, 0.463, 17.3, 60.3),
}

SHAKESPEARE: Mapping[str, str] = {
    "MLP": "2.18 and 2.14",
    "TLTransformer": "1.61 and 1.65",
    "NanoGPT": "1.81 and 1.47",
}
"""Test losses after 300 s (the third MLP: 600 s). NanoGPT's were of a training batch, by mistake."""
