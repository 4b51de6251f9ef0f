"""``saved_activation_bytes``: what an eager forward keeps for its backward.

Bytes beside parameters, buffers and inputs, every storage once. Absent for a step
that is not training: it keeps nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import torch

from harness.metrics import Ended
from harness.schema import BASELINE, Mode, Scalar
from harness.tensors import named_tensors

WHEN = "eager"


@contextmanager
def observe(ended: Ended, numbers: dict[str, Scalar]) -> Iterator[None]:
    if ended.job.case.mode is not Mode.TRAINING:
        yield
        return
    variant = ended.variants[BASELINE]
    program = variant.program
    given = [tensor for _, tensor in named_tensors((program.args, program.kwargs, program.target), "given")]
    there = _storages([*program.module.parameters(), *program.module.buffers(), *given])
    saved: dict[int, int] = {}
    kept = []  # alive until the end of the step, so that no address is used twice

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        kept.append(tensor)
        saved.update(_storages([tensor]))
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        yield
    kept.clear()
    numbers["saved_activation_bytes"] = sum(b for at, b in saved.items() if at not in there)


def _storages(tensors: Iterable[torch.Tensor]) -> dict[int, int]:
    """Address and bytes of each storage. Other layouts than dense ones have none of their own."""
    dense = [tensor for tensor in tensors if tensor.layout is torch.strided]
    return {t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() for t in dense}
