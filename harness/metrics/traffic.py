"""``bytes_per_step``: what eager's operations read and write in one step; and how fast this memory is.

Every operation that computes counts the tensors that it is given and those that it
makes, forward and backward; views cost nothing: a step of views alone has 0. That is the traffic of a step in
which nothing is fused: a compiler that fuses moves less. Caches are left out, so a
step that fits into them is faster than its bytes suggest.

``measured_bandwidth_bytes_per_s`` is the best of several copies of 64 MiB (1 GiB on
CUDA), under 0.2 s in all, read and written bytes together.
FLOPs over bytes are a step's place on the roofline (Williams, Waterman, Patterson 2009).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten

from harness.metrics import WHOLE, ByVariant, Ended
from harness.schema import BASELINE

WHEN = "end"
BUDGET_S = 0.15
COPIED_BYTES = {"cuda": 1 << 30, "cpu": 1 << 26}  # more than the caches hold
MOST_COPIES = 10


def measure(ended: Ended) -> ByVariant:
    variant = ended.variants[BASELINE]
    counter = TrafficCounter()
    with counter:
        variant.step()
    variant.release()
    size = COPIED_BYTES.get(ended.device.type, COPIED_BYTES["cpu"])
    return {
        WHOLE: {
            "bytes_per_step": counter.bytes,
            "measured_bandwidth_bytes_per_s": bandwidth(size, ended.device, ended.synchronise),
        }
    }


class TrafficCounter(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Adds up in ``bytes`` what the operations inside the ``with`` read and write."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.bytes = 0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        made = func(*args, **(kwargs or {}))
        given = _storages(tree_flatten((args, kwargs))[0])
        results = _storages(tree_flatten(made)[0])
        # a view makes no storage of its own; what works in place does not either, but its schema says so
        if func._schema.is_mutable or not results.keys() <= given.keys():  # noqa: SLF001 - torch's own name
            self.bytes += sum(given.values()) + sum(results.values())
        return made


def _storages(values: Iterable[Any]) -> dict[int, int]:
    """Address and bytes of each tensor; of an expanded or sliced one, what there really is to read."""
    found: dict[int, int] = {}
    for tensor in values:
        if isinstance(tensor, torch.Tensor) and tensor.layout is torch.strided and tensor.numel():
            storage = tensor.untyped_storage()
            size = min(tensor.numel() * tensor.element_size(), storage.nbytes())
            found[storage.data_ptr()] = max(size, found.get(storage.data_ptr(), 0))
    return found


def bandwidth(
    size: int,
    device: torch.device,
    synchronise: Callable[[], None],
    clock: Callable[[], float] = time.perf_counter,
) -> float:
    """Bytes/s, read and written, of the fastest copy of ``size`` bytes from one place to another."""
    source = torch.ones(size, dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    target.copy_(source)  # the pages of both are there now
    synchronise()
    began, times = clock(), list[float]()
    while len(times) < 3 or (len(times) < MOST_COPIES and clock() - began < BUDGET_S):
        start = clock()
        target.copy_(source)
        synchronise()
        times.append(clock() - start)
    return 2 * size / min(times)
