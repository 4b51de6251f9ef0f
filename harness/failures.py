"""Turning exceptions into the record's words."""

from __future__ import annotations

import torch

from harness.schema import Failure


def is_out_of_memory(error: BaseException) -> bool:
    """Whether the device or the host had no memory left."""
    if isinstance(error, (MemoryError, torch.cuda.OutOfMemoryError)):
        return True
    text = str(error).lower()
    return isinstance(error, RuntimeError) and ("out of memory" in text or "can't allocate memory" in text)


def describe_failure(error: BaseException, phase: str) -> Failure:
    """The exception as a ``Failure``; long messages are cut, the whole one is in the log."""
    message = " ".join(str(error).split())
    return Failure(kind=type(error).__name__, message=message[:600], phase=phase)
