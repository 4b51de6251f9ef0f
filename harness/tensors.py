"""Walking nested values: inputs to move and cast, outputs to compare."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch


def map_tensors(value: Any, change: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    """``value`` with every tensor replaced by ``change(tensor)``.

    Looks into tuples, lists, mappings (which come back as dicts) and dataclasses.
    """
    if isinstance(value, torch.Tensor):
        return change(value)
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(map_tensors(item, change) for item in value))
    if isinstance(value, (tuple, list)):
        return type(value)(map_tensors(item, change) for item in value)
    if isinstance(value, Mapping):
        return {key: map_tensors(item, change) for key, item in value.items()}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        copied = copy.copy(value)
        for field in dataclasses.fields(value):
            # a frozen class has no setter, and its __init__ may check more than tensors
            object.__setattr__(copied, field.name, map_tensors(getattr(value, field.name), change))
        return copied
    return value


def named_tensors(value: Any, name: str) -> Iterator[tuple[str, torch.Tensor]]:
    """Every tensor in ``value`` with a name that says where it was. Other leaves are skipped.

    Looks into tuples, lists, mappings and dataclasses. A tensor that occurs twice is yielded twice.
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

    def own(tensor: torch.Tensor) -> torch.Tensor:
        moved = tensor.detach().clone().to(device)
        return cast_values(moved, cast).requires_grad_(tensor.requires_grad)

    return map_tensors(value, own)


def cast_values(tensor: torch.Tensor, cast: torch.dtype | None) -> torch.Tensor:
    """Floating tensors as ``cast``. Complex tensors change only if ``cast`` is fp64: to complex128."""
    if cast is None:
        return tensor
    if tensor.is_complex():
        return tensor.to(torch.complex128) if cast is torch.float64 else tensor
    return tensor.to(cast) if tensor.is_floating_point() else tensor


def cast_module(module: torch.nn.Module, cast: torch.dtype) -> None:
    """Applies ``cast_values`` to every parameter and buffer. ``Module.to`` would drop imaginary parts."""
    buffers: dict[int, torch.Tensor] = {}  # a shared buffer stays shared
    for part in module.modules():
        for parameter in part.parameters(recurse=False):
            parameter.data = cast_values(parameter.data, cast)
        for name, buffer in list(part.named_buffers(recurse=False, remove_duplicate=False)):
            setattr(part, name, buffers.setdefault(id(buffer), cast_values(buffer, cast)))
