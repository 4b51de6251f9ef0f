"""The published training times of study A, beside which ours are put, and the words of its tables."""

from __future__ import annotations

from studies.expectations import published

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
PRECISIONS, MODES = tuple(HEADS), tuple(LABELS)
NOISE = (
    "Noise of the published times: TorchSharp with tf32 was timed three times (5:19, 5:22, 5:23); these "
    "times are 1.3% apart. PyTorch 2.1 with CUDA 11.8 and Python 3.11 in fp32 is in two lists, with 5:27 and "
    "with 4:39: 17% apart. Also published: PyTorch 2.0.1 with CUDA 11.7 and Python 3.11 in fp32, 4:28."
)


def lists() -> list[str]:
    """The lists of the source, by the versions that they name."""
    return list(dict.fromkeys(row["group"] for row in published("training_time")))


def row_of(group: str, mode: str) -> dict[str, str]:
    """Minutes:seconds by precision; empty if the list does not have the mode."""
    rows = (row for row in published("training_time") if (row["group"], row["mode"]) == (group, mode))
    return next(rows, {})


def ratio(group: str, mode: str, precision: str) -> float | None:
    """How many times as fast as float32 eager of the same list; None if the source has no such time."""
    time = row_of(group, mode).get(precision)
    return seconds_of(row_of(group, "eager")["float32"]) / seconds_of(time) if time else None


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
