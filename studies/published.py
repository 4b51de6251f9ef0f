"""The figures that the studies published, on their machines: what ours are put beside."""

from __future__ import annotations

from collections.abc import Mapping

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
"""Study A, minutes:seconds of whole training runs on one RTX 3070, by (row, precision)."""

REFERENCE = {"CUDA 11.7": "PyTorch 2.0.1", "CUDA 12.1": "PyTorch 2.1.0"}
"""The rows whose float32 time is the 1 of the ratios."""

ALSO_PUBLISHED = (
    "Also published: tf32 and bf16 autocast together, 4:40 eager and 2:30 compiled (torch 2.1, CUDA 11.8); "
    "submodules compiled one by one 5:17 and the whole model 5:13 where eager took 6:10."
)


def seconds_of(text: str) -> int:
    """``5:31`` as 331."""
    minutes, seconds = text.split(":")
    return 60 * int(minutes) + int(seconds)


def minutes_text(seconds: float) -> str:
    """``5:31``; below a minute with a tenth, ``0:07.4``, so that short runs can be told apart."""
    if seconds < 60:
        tenths = round(seconds * 10)
        return f"{tenths // 600}:{tenths % 600 / 10:04.1f}"
    whole = round(seconds)
    return f"{whole // 60}:{whole % 60:02d}"
