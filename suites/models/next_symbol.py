"""The losses of the small language models: mean cross-entropy, in nats, of the next symbol."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch.nn import functional

if TYPE_CHECKING:
    from torch import Tensor


def every_symbol_loss(logits: Tensor, target: Tensor) -> Tensor:
    """Mean over all positions. ``logits`` (batch, time, vocabulary), ``target`` (batch, time)."""
    return functional.cross_entropy(logits.flatten(0, 1), target.flatten())


def last_symbol_loss(logits: Tensor, target: Tensor) -> Tensor:
    """Mean over the last positions only. ``logits`` (batch, time, vocabulary), ``target`` (batch,)."""
    return functional.cross_entropy(logits[:, -1], target)
