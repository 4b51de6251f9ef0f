"""The published training times of study A, beside which ours are put, and the words of its tables."""

from __future__ import annotations

from studies.published import published

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
ADDED = {
    "eager": "",
    "script": " + TorchScript script",
    "compile": " + compile",
    "submodules": " + compile, each submodule",
}
"""What the source adds to the name of the version."""
NOISE = (
    "Noise of the published times: TorchSharp with tf32 was timed three times (5:19, 5:22, 5:23); these "
    "times are 1.3% apart. PyTorch 2.1 with CUDA 11.8 and Python 3.11 in fp32 is in two lists, with 5:27 and "
    "with 4:39: 17% apart. Also published: PyTorch 2.0.1 with CUDA 11.7 and Python 3.11 in fp32, 4:28."
)


def lists() -> dict[str, dict[str, dict[str, str]]]:
    """List of the source -> variant -> precision -> minutes:seconds."""
    groups: dict[str, dict[str, dict[str, str]]] = {}
    for row in published("training_time"):
        groups.setdefault(row["group"], {})[row["variant"]] = row
    return groups


def reference(group: str) -> str:
    """The eager variant of a list, to whose float32 time its ratios are relative."""
    return next(name for name in lists()[group] if name.startswith("PyTorch") and "+" not in name)


def ratio(group: str, mode: str, precision: str) -> float | None:
    """How many times as fast as float32 eager of the same list; None if the source has no such time."""
    times, base = lists()[group], reference(group)
    time = times.get(base + ADDED[mode], {}).get(precision) if mode in ADDED else None
    return seconds_of(times[base]["float32"]) / seconds_of(time) if time else None


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
