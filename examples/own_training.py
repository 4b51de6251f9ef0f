"""What a training loop does beside an optimizer's step: in an optimizer and a model of your own.

EXAMPLE=examples/own_training.py
python runner.py --training --model=$EXAMPLE:make --optimizer=$EXAMPLE:optimizer
"""

from typing import Any

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint


class Clipped(torch.optim.AdamW):
    """Limits the norm of all gradients before its step, and lowers its rate after it."""

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            nn.utils.clip_grad_norm_(group["params"], 1.0)
        super().step(closure)
        for group in self.param_groups:
            group["lr"] *= 0.9999


class Blocks(nn.Module):
    """Keeps no activation of its blocks: the backward computes them again."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(256, 256), nn.GELU()) for _ in range(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False)
        return x


class Accumulating(nn.Module):
    """One step over four parts of a batch: their mean is the loss of the whole."""

    def __init__(self) -> None:
        super().__init__()
        self.model = Blocks()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        losses = [self.model(part).square().mean() for part in x.chunk(4)]
        return torch.stack(losses).mean()


def optimizer(parameters: list[nn.Parameter]) -> torch.optim.Optimizer:
    return Clipped(parameters, lr=1e-3)


def make() -> tuple[nn.Module, torch.Tensor]:
    return Accumulating(), torch.randn(64, 256)
