"""The published training times of study A, for comparison with ours."""

from __future__ import annotations

from collections.abc import Mapping

PRECISIONS = ("float32", "tf32", "amp_bfloat16", "amp_bfloat16+tf32")
MODES = ("eager", "script", "compile", "submodules")

# the heads of columns and the labels of rows in all tables
HEADS = {
    "float32": "default (fp32)",
    "tf32": "allow_tf32",
    "amp_bfloat16": "bf16 autocast",
    "amp_bfloat16+tf32": "tf32 + bf16 autocast",
}
LABELS = {
    "eager": "PyTorch",
    "script": "PyTorch + TorchScript script",
    "compile": "PyTorch + compile",
    "submodules": "PyTorch + compile, each block",
}

UNNAMED = "versions not given"
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
    "CUDA 11.8, Python 3.11": {
        ("PyTorch 2.1.0", "float32"): "5:27",
        ("PyTorch 2.1.0", "tf32"): "5:24",
        ("PyTorch 2.1.0", "amp_bfloat16"): "4:41",
        ("PyTorch 2.1.0", "amp_bfloat16+tf32"): "4:40",
        ("PyTorch 2.1.0 + TorchScript script", "float32"): "5:39",
        ("PyTorch 2.1.0 + compile", "float32"): "4:04",
        ("PyTorch 2.1.0 + compile", "tf32"): "3:57",
        ("PyTorch 2.1.0 + compile", "amp_bfloat16"): "2:30",
        ("PyTorch 2.1.0 + compile", "amp_bfloat16+tf32"): "2:30",
    },
    UNNAMED: {
        ("PyTorch", "float32"): "6:10",
        ("PyTorch + compile", "float32"): "5:13",
        ("PyTorch + compile", "tf32"): "4:56",
        ("PyTorch + compile", "amp_bfloat16"): "4:32",
        ("PyTorch + compile, each submodule", "float32"): "5:17",
    },
}
"""Minutes:seconds of complete training runs on one RTX 3070, by (row, precision)."""

REFERENCE = {
    "CUDA 11.7": "PyTorch 2.0.1",
    "CUDA 12.1": "PyTorch 2.1.0",
    "CUDA 11.8, Python 3.11": "PyTorch 2.1.0",
    UNNAMED: "PyTorch",
}
"""Ratios are relative to the float32 time of these rows."""

REPEATS = ("5:19", "5:22", "5:23")
"""The same program three times: TorchSharp with tf32, CUDA 11.7."""
ALONE = "4:39"
"""PyTorch 2.1, CUDA 11.8 and Python 3.11 in float32 once more, outside of the list with 5:27."""


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


def noise_text() -> str:
    """What the source itself shows of the noise of its times."""
    times = [seconds_of(text) for text in REPEATS]
    listed = TRAINING_TIME["CUDA 11.8, Python 3.11"]["PyTorch 2.1.0", "float32"]
    factor = seconds_of(listed) / seconds_of(ALONE)
    return (
        f"Noise of the published times: TorchSharp with tf32 was timed three times ({', '.join(REPEATS)}); "
        f"these times are {(max(times) - min(times)) / min(times):.1%} apart. PyTorch 2.1 with CUDA 11.8 and "
        f"Python 3.11 in fp32 is in two lists, with {listed} and with {ALONE}: {factor - 1:.0%} apart. Also "
        "published: PyTorch 2.0.1 with CUDA 11.7 and Python 3.11 in fp32, 4:28."
    )
