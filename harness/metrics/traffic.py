"""``bytes_per_step``: the bytes that eager's operations read and write in one step.

The bytes of all input and output tensors of every operation, forward and backward. Views count as 0. This is
the traffic without fusion; a compiler that fuses operations moves fewer bytes. Caches are ignored, so a step
that fits into them is faster than its bytes suggest.
FLOPs / bytes is a step's place on the roofline (Williams, Waterman, Patterson 2009).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from harness.declared import GIGA
from harness.metrics import Ended, declared_beside
from harness.schema import Scalar

WHEN = "eager"
METRICS = declared_beside(__file__, gb_per_s=lambda seen: seen.per_s("bytes_per_step", GIGA))


@contextmanager
def observe(ended: Ended, numbers: dict[str, Scalar]) -> Iterator[None]:
    counter = traffic_counter()
    with counter:
        yield
    numbers["bytes_per_step"] = counter.bytes


def traffic_counter() -> Any:
    """A context manager: ``bytes`` of the traffic of the ``operations`` inside that are no views."""
    from torch.utils._pytree import tree_flatten

    from harness.timing.modes import Operations

    class Counter(Operations):
        bytes, operations = 0, 0

        def operation(self, func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
            result = func(*args, **kwargs)
            given = _storages(tree_flatten((args, kwargs))[0])
            results = _storages(tree_flatten(result)[0])
            # a view makes no new storage; an in-place operation does not either, but its schema is mutable
            if func._schema.is_mutable or not results.keys() <= given.keys():  # noqa: SLF001 - torch's name
                self.operations += 1
                self.bytes += sum(given.values()) + sum(results.values())
            return result

    return Counter()


def _storages(values: Iterable[Any]) -> dict[int, int]:
    """Storage -> bytes of each dense tensor. An expanded or sliced tensor counts only the bytes it reads."""
    import torch

    sizes: dict[int, int] = {}
    for tensor in values:
        if isinstance(tensor, torch.Tensor) and tensor.layout is torch.strided and tensor.numel():
            storage = tensor.untyped_storage()
            key = storage._cdata  # noqa: SLF001 - fake tensors have no address
            size = min(tensor.numel() * tensor.element_size(), storage.nbytes())
            sizes[key] = max(size, sizes.get(key, 0))
    return sizes
