"""Turning exceptions into the record's words."""

from __future__ import annotations

import torch

from harness.schema import Failure

WORDS = ("out of memory", "can't allocate memory")


def is_out_of_memory(error: BaseException) -> bool:
    """Whether the device or the host had no memory left, here or in what this was raised from."""
    seen: list[BaseException] = []
    link: BaseException | None = error
    while link is not None and link not in seen:
        if isinstance(link, (MemoryError, torch.cuda.OutOfMemoryError)):
            return True
        if isinstance(link, RuntimeError) and any(words in str(link).lower() for words in WORDS):
            return True
        seen.append(link)
        link = link.__cause__
    return False


def describe_failure(error: BaseException, phase: str) -> Failure:
    """The exception as a ``Failure``; long messages are cut, the whole one is in the log."""
    # a lone surrogate, as in an undecodable file name, could not be written to the record
    message = " ".join(str(error).encode("utf-8", "replace").decode().split())
    return Failure(kind=type(error).__name__, message=message[:600], phase=phase)
