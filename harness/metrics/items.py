"""``items_per_step`` and ``item``: what one step works through, by the shape of its inputs.

Generation: new tokens, batch x new tokens. Else tokens, batch x sequence, where
an input is whole numbers of two dimensions (the first such input: an encoder's);
images where the first input has four dimensions; else samples, the first
dimension of the first input. Absent where the inputs do not say.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from harness.metrics import WHOLE, ByVariant, Ended
from harness.schema import BASELINE
from harness.sizes import batches
from harness.tensors import named_tensors

WHEN = "end"
WHOLE_NUMBERS = (torch.int64, torch.int32)


def measure(ended: Ended) -> ByVariant:
    program = ended.variants[BASELINE].program
    given = [tensor for _, tensor in named_tensors((program.args, program.kwargs), "input")]
    found = items(given, ended.job.case.new_tokens)
    if found is None:
        return {}
    sizes = batches(program)
    share = sum(sizes) / sizes[-1]  # above 1 where a step runs several batches
    return {
        WHOLE: {"items_per_step": round(found[0] * share), "item": found[1], "batches_per_step": str(sizes)}
    }


def items(inputs: Sequence[torch.Tensor], new_tokens: int | None) -> tuple[int, str] | None:
    """How many of what a step with these inputs works through. See the module."""
    inputs = [tensor for tensor in inputs if tensor.ndim > 0]
    if not inputs:
        return None
    batch = int(inputs[0].shape[0])
    if new_tokens is not None:
        return batch * new_tokens, "new tokens"
    tokens = [t for t in inputs if t.ndim == 2 and t.dtype in WHOLE_NUMBERS]
    if tokens:
        return tokens[0].numel(), "tokens"
    if inputs[0].ndim == 4:
        return batch, "images"
    return batch, "samples"
