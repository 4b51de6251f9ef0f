"""What Dynamo captured while a candidate was compiled: graphs, calls, breaks, cache hits (counts)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from harness import counters
from harness.schema import Scalar

WHEN = "compile"


@contextmanager
def observe(device: torch.device, numbers: dict[str, Scalar]) -> Iterator[None]:
    before = counters.snapshot()
    yield
    numbers.update(counters.growth(before, counters.snapshot()))
