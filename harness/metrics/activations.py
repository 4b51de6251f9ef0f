"""``saved_activation_bytes``: the memory that an eager forward keeps for its backward.

Bytes without parameters, buffers and inputs; each storage counts once. Only in training.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from harness.metrics import Ended, declared_beside
from harness.schema import BASELINE, Mode, Scalar

if TYPE_CHECKING:
    import torch

WHEN = "eager"
METRICS = declared_beside(__file__)


@contextmanager
def observe(ended: Ended, numbers: dict[str, Scalar]) -> Iterator[None]:
    if ended.job.case.mode is not Mode.TRAINING:
        yield
        return
    import torch

    from harness.tensors import named_tensors, storages

    program = ended.variants[BASELINE].program
    given = [tensor for _, tensor in named_tensors((program.args, program.kwargs, program.target), "given")]
    before = storages([*program.module.parameters(), *program.module.buffers(), *given])
    saved: list[torch.Tensor] = []  # keeps the tensors alive, so that no address is reused during the step

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        saved.append(tensor)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        yield
    numbers["saved_activation_bytes"] = sum(b for at, b in storages(saved).items() if at not in before)
    saved.clear()
