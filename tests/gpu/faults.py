"""A model, and a compiler that breaks the device. Workers load this file by its path."""

import os
import signal
from typing import Any

import torch
from torch import nn

from harness.workload import Workload


def model(batch_size: int = 8) -> Workload:
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(64, 256), nn.GELU(), nn.Linear(256, 64))
    given = torch.randn(batch_size, 64)
    return Workload(module=module, args=(given,), loss=lambda out, _: out.square().mean())


class _Breaks(nn.Module):
    """The module, and in its fourth step an assertion that fails on the device."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module
        self.steps = 0

    def forward(self, x: torch.Tensor) -> Any:
        self.steps += 1
        if self.steps == 4 and x.device.type == "cpu":  # the stand-in: no error of a CPU stays
            os.kill(os.getpid(), signal.SIGSEGV)
        elif self.steps == 4:
            torch.zeros(4, device=x.device)[torch.full((1,), 1 << 20, device=x.device)] += 1
        return self.module(x)


def breaks(module: nn.Module) -> Any:
    """Runs eager, and breaks the device."""
    return _Breaks(module)
