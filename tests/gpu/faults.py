"""A model, and compilers that break the device or fill its memory. Workers load this file by its path."""

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


class _Spoiled(nn.Module):
    """The module, and something else in its fourth step."""

    def __init__(self, module: nn.Module, act: Any) -> None:
        super().__init__()
        self.module, self.act = module, act
        self.steps = 0

    def forward(self, x: torch.Tensor) -> Any:
        self.steps += 1
        if self.steps == 4:
            self.act(x)
        return self.module(x)


def _assert_on_device(x: torch.Tensor) -> None:
    if x.device.type == "cpu":  # the stand-in: it ends the process, as no error of a CPU stays
        os.kill(os.getpid(), signal.SIGSEGV)
    index = torch.full((1,), 1 << 20, device=x.device)
    torch.zeros(4, device=x.device)[index] += 1


def _fill(x: torch.Tensor) -> None:
    torch.empty(1 << 50, dtype=torch.uint8, device=x.device)


def breaks(module: nn.Module) -> Any:
    """Runs eager; its fourth step fails an assertion on the device."""
    return _Spoiled(module, _assert_on_device)


def fills(module: nn.Module) -> Any:
    """Runs eager; its fourth step asks for more memory than there is."""
    return _Spoiled(module, _fill)
