"""``items_per_step`` and ``item``: how many tokens, images or samples one step processes.

- Generation: new tokens (batch x new tokens).
- An input holds integers and has two dimensions: tokens (batch x sequence of the first such input).
- The first input has four dimensions: images (batch).
- Else: samples (first dimension of the first input). Absent if no input has a dimension.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from harness.metrics import ByVariant, Ended, declared_beside
from harness.schema import BASELINE, WHOLE

if TYPE_CHECKING:
    import torch

WHEN = "end"
METRICS = declared_beside(__file__, items_per_s=lambda seen: seen.per_s("items_per_step"))


def measure(ended: Ended) -> ByVariant:
    from harness.loading.sizes import batches
    from harness.tensors import named_tensors

    program = ended.variants[BASELINE].program
    given = [tensor for _, tensor in named_tensors((program.args, program.kwargs), "input")]
    counted = items(given, ended.job.case.new_tokens)
    if counted is None:
        return {}
    count, item = counted
    sizes = batches(program)
    share = sum(sizes) / sizes[-1]  # above 1 if a step runs several batches
    return {WHOLE: {"items_per_step": round(count * share), "item": item, "batches_per_step": str(sizes)}}


def items(inputs: Sequence[torch.Tensor], new_tokens: int | None) -> tuple[int, str] | None:
    """The number and the kind of the items of a step. See the module."""
    inputs = [tensor for tensor in inputs if tensor.ndim > 0]
    if not inputs:
        return None
    batch = int(inputs[0].shape[0])
    if new_tokens is not None:
        return batch * new_tokens, "new tokens"
    tokens = [t for t in inputs if t.ndim == 2 and str(t.dtype) in ("torch.int64", "torch.int32")]
    if tokens:
        return tokens[0].numel(), "tokens"
    return batch, "images" if inputs[0].ndim == 4 else "samples"
