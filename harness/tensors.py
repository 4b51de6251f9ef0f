"""Walking nested values: inputs to move and cast, outputs to compare."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch


def map_tensors(value: Any, change: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    """``value`` with every tensor in its tuples, lists and dicts replaced by ``change(tensor)``."""
    if isinstance(value, torch.Tensor):
        return change(value)
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(map_tensors(item, change) for item in value))
    if isinstance(value, (tuple, list)):
        return type(value)(map_tensors(item, change) for item in value)
    if isinstance(value, Mapping):
        return {key: map_tensors(item, change) for key, item in value.items()}
    return value


def named_tensors(value: Any, name: str) -> Iterator[tuple[str, torch.Tensor]]:
    """Every tensor in ``value`` with a name that says where it was; other leaves are passed over.

    Looks into tuples, lists, mappings and dataclass-like outputs. A tensor
    that can be reached twice is given twice.
    """
    if isinstance(value, torch.Tensor):
        yield name, value
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from named_tensors(item, f"{name}.{key}")
    elif isinstance(value, (tuple, list)):
        for index, item in enumerate(value):
            yield from named_tensors(item, f"{name}.{index}")
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        for field in dataclasses.fields(value):
            yield from named_tensors(getattr(value, field.name), f"{name}.{field.name}")


def fresh_copy(value: Any, device: torch.device, cast: torch.dtype | None) -> Any:
    """An independent copy on ``device``; floating tensors are cast, others keep their type."""

    def copy(tensor: torch.Tensor) -> torch.Tensor:
        moved = tensor.detach().clone().to(device)
        if cast is not None and moved.is_floating_point():
            moved = moved.to(cast)
        return moved.requires_grad_(tensor.requires_grad)

    return map_tensors(value, copy)
