"""``python -m harness.probe cuda:0``: which of these devices torch cannot use, and why, as JSON."""

from __future__ import annotations

import json
import sys

import torch


def why_missing(device: str) -> str | None:
    """The reason why ``device`` cannot be used, or None when it can."""
    kind, _, index = device.partition(":")
    if kind == "cpu":
        return None
    if not torch.cuda.is_available():
        return f"torch {torch.__version__} finds no CUDA device"
    if int(index or 0) >= torch.cuda.device_count():
        return f"torch finds {torch.cuda.device_count()} CUDA devices"
    return None


if __name__ == "__main__":
    print(json.dumps({device: why for device in sys.argv[1:] if (why := why_missing(device))}))
