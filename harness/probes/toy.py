"""A small, fixed training step to test a machine with. It takes a few milliseconds on any CPU."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch


def make() -> tuple[torch.nn.Module, Any]:
    """(module, inputs) for ``--model harness.probes.toy:make``: three layers, a batch of 64."""
    from itertools import pairwise

    import torch

    sizes = (512, 768, 768, 64)
    layers: list[torch.nn.Module] = []
    for width, following in pairwise(sizes):
        layers += [torch.nn.Linear(width, following), torch.nn.GELU()]
    return torch.nn.Sequential(*layers), torch.randn(64, sizes[0])
