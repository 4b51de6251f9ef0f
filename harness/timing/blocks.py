"""The repeated blocks of a model, and ``--activation-checkpointing`` of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from types import MappingProxyType
from typing import Any

from torch import nn
from torch.utils.checkpoint import checkpoint

ANEW: Mapping[str, Any] = MappingProxyType({"use_reentrant": False})  # torch advises it
SWITCHES: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {
        "activation_checkpointing_enable": {"activation_checkpointing_kwargs": dict(ANEW)},  # transformers 5
        "gradient_checkpointing_enable": {"gradient_checkpointing_kwargs": dict(ANEW)},
        "set_grad_checkpointing": {},  # timm
    }
)
"""The methods by which libraries switch it on, with their arguments."""


def checkpoint_activations(module: nn.Module) -> str:
    """By the library's own switch; else the repeated blocks. Says how. ``ValueError`` without either."""
    for part in module.modules():
        for name, arguments in SWITCHES.items():
            switch = getattr(part, name, None)
            if callable(switch):
                switch(**arguments)
                return f"activations are checkpointed by {name}"
    blocks = repeated_blocks(module)
    if not blocks:
        raise ValueError("--activation-checkpointing: this model has no switch for it, and no repeated block")
    for block in blocks:
        block.forward = partial(checkpoint, block.forward, **ANEW)
    return f"activations of {len(blocks)} blocks are checkpointed"


def repeated_blocks(module: nn.Module) -> list[nn.Module]:
    """The outermost blocks repeated in a list or sequence.

    A block is a module with submodules. Repeated single layers, such as stacked convolutions, are no blocks.
    """
    return list(dict.fromkeys(_repeated(module)))


def _repeated(module: nn.Module) -> Iterator[nn.Module]:
    for child in module.children():
        if isinstance(module, (nn.ModuleList, nn.Sequential, nn.ModuleDict)):
            alike = [other for other in module.children() if type(other) is type(child)]
            if len(alike) >= 2 and any(child.children()):
                yield child
                continue
        yield from _repeated(child)
