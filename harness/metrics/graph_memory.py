"""``cudagraph_pool_bytes``: the memory that a candidate's CUDA graphs keep between their replays.

A replay allocates nothing. The intermediate results have their place in a private pool of the allocator
since the capture, so the peak of a step does not contain them. This metric is the growth of all private pools
during the candidate's compilation and first calls. ``peak_memory_bytes`` includes it.

torch gives all CUDA graphs of a process one pool. A second candidate with CUDA graphs reuses its memory, so
the growth is not all that it needs: the number is null then. With ``--isolate`` every candidate has a
process, and a pool, of its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from harness.declared import MEMORY, Metric
from harness.devices import of
from harness.schema import Scalar

if TYPE_CHECKING:
    import torch

WHEN = "compile"
METRICS = (
    Metric(
        "cudagraph_pool_bytes",
        "bytes",
        "memory that the candidate's CUDA graphs keep; null if it shares it with an earlier candidate",
        group=MEMORY,
    ),
)


@contextmanager
def observe(device: torch.device, numbers: dict[str, Scalar]) -> Iterator[None]:
    counted = of(device)
    before = counted.pool_bytes()
    yield
    after = counted.pool_bytes()
    if after is not None:  # else this kind of device has no such pools
        numbers["cudagraph_pool_bytes"] = None if before is None else grown(before, after)


def grown(before: int, after: int) -> int | None:
    """The growth of the pools; None if it is only a part of what the candidate uses."""
    return None if before and after != before else after - before
