"""``bytes_per_step``: what eager's operations read and write in one step.

Every operation that computes counts the tensors that it is given and those that it
makes, forward and backward; views cost nothing: a step of views alone has 0. That is the traffic of a step in
which nothing is fused: a compiler that fuses moves less. Caches are left out, so a
step that fits into them is faster than its bytes suggest.
FLOPs over bytes are a step's place on the roofline (Williams, Waterman, Patterson 2009).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten

from harness.metrics import Ended
from harness.schema import Scalar

WHEN = "eager"


@contextmanager
def observe(ended: Ended, numbers: dict[str, Scalar]) -> Iterator[None]:
    counter = TrafficCounter()
    with counter:
        yield
    numbers["bytes_per_step"] = counter.bytes


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
