"""The repeated blocks of a model."""

from __future__ import annotations

from collections.abc import Iterator

from torch import nn


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
