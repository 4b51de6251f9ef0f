"""Walking nested values: inputs to move and cast, outputs to compare."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import FunctionType, ModuleType
from typing import Any

import torch

Tensors = Mapping[str, torch.Tensor]
"""By name."""
IMAGE_DIMENSIONS = 4  # of what has a channels-last order
CANNOT = "torchduet cannot compare it; return what has values, or leave it out of the output"
DEEPEST = 8  # containers inside each other: an object may contain itself
NO_RESULTS = (torch.nn.Module, type, ModuleType, FunctionType)


def map_tensors(value: Any, change: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    """``value`` with every tensor replaced by ``change(tensor)``.

    Looks into tuples, lists, dataclasses, and mappings, which come back as dicts or transformers' outputs.
    """
    if isinstance(value, torch.Tensor):
        return change(value)
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        items = [map_tensors(item, change) for item in value]
        if isinstance(value, torch.nn.utils.rnn.PackedSequence):
            items[1] = items[1].cpu()  # the batch sizes, wherever the data are
        return type(value)(*items)
    if isinstance(value, (tuple, list)):
        return type(value)(map_tensors(item, change) for item in value)
    if isinstance(value, Mapping):
        changed = {key: map_tensors(item, change) for key, item in value.items()}
        of_transformers = isinstance(value, dict) and dataclasses.is_dataclass(value)
        return type(value)(**changed) if of_transformers else changed
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
    return ((place, leaf) for place, leaf in named_leaves(value, name) if isinstance(leaf, torch.Tensor))


def named_leaves(
    value: Any, name: str, *, objects: bool = False, depth: int = 0
) -> Iterator[tuple[str, Any]]:
    """Everything in ``value`` that is no container. ``objects``: looks into other objects, too.

    Of these, such as a cache of keys and values, it yields tensors only.
    """
    if isinstance(value, torch.Tensor):  # first: Dynamo before torch 2.6 cannot trace is_dataclass
        yield name, value
        return
    inside: Iterable[tuple[Any, Any]]
    if isinstance(value, Mapping):
        inside = value.items()
    elif isinstance(value, (tuple, list)):
        inside = enumerate(value)
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        inside = ((field.name, getattr(value, field.name)) for field in dataclasses.fields(value))
    elif objects and depth < DEEPEST and hasattr(value, "__dict__") and not isinstance(value, NO_RESULTS):
        for key, item in vars(value).items():
            for place, leaf in named_leaves(item, f"{name}.{key}", objects=True, depth=depth + 1):
                if isinstance(leaf, torch.Tensor):
                    yield place, leaf
        return
    else:
        yield name, value
        return
    for key, item in inside:
        yield from named_leaves(item, f"{name}.{key}", objects=objects, depth=depth + 1)


def inner_tensors(name: str, tensor: torch.Tensor) -> Iterator[tuple[str, torch.Tensor]]:
    """The tensors that hold the data, by name. A quantized tensor wraps several and has no storage itself."""
    if not hasattr(tensor, "__tensor_flatten__"):
        yield name, tensor
        return
    for part in tensor.__tensor_flatten__()[0]:
        yield from inner_tensors(f"{name}.{part}", getattr(tensor, part))


def has_memory(tensor: torch.Tensor) -> bool:
    """Whether its values lie in a memory that has an address.

    Not those of sparse and nested tensors, of wrappers, and of the zeros that forward-mode derivatives make.
    """
    if tensor.layout is not torch.strided or tensor.is_nested or tensor.is_quantized:
        return False
    try:
        tensor.untyped_storage().data_ptr()
    except (NotImplementedError, RuntimeError):  # torch's answer for a storage that is not there
        return False
    return not tensor._is_zerotensor()  # type: ignore[attr-defined]  # noqa: SLF001 - torch has no other name


def shape_of(tensor: torch.Tensor) -> tuple[Any, ...]:
    """The sizes; of a nested tensor, those of its components."""
    return tuple(tuple(part.shape) for part in tensor.unbind()) if tensor.is_nested else tuple(tensor.shape)


def dense_parts(name: str, tensor: torch.Tensor) -> Iterator[tuple[str, torch.Tensor]]:
    """Dense tensors, by name, that hold the same values; of a nested tensor, its components, too.

    ``TypeError`` with a sentence for a tensor that holds no values which could be read.
    """
    if tensor.is_nested:
        parts = tensor.unbind()
        yield f"{name}.sizes", torch.tensor([list(part.shape) for part in parts], device=tensor.device)
        yield (
            f"{name}.values",
            torch.cat([part.flatten() for part in parts]) if parts else tensor.new_empty(0),
        )
    elif isinstance(tensor, torch.masked.MaskedTensor):
        yield f"{name}.mask", tensor.get_mask()
        yield name, tensor.get_data().masked_fill(~tensor.get_mask(), 0)
    elif tensor.is_meta:
        raise TypeError(f"{name} is on the device meta, which holds no values: {CANNOT}")
    elif tensor._is_zerotensor():  # type: ignore[attr-defined]  # noqa: SLF001
        yield name, torch.zeros(tensor.shape, dtype=tensor.dtype, device=tensor.device)
    else:
        yield name, tensor if tensor.layout is torch.strided else tensor.to_dense()


def storages(tensors: Iterable[torch.Tensor]) -> dict[int, int]:
    """Address -> bytes of each storage of the dense tensors. Other layouts have no storage of their own."""
    dense = [tensor.untyped_storage() for tensor in tensors if has_memory(tensor)]
    return {storage.data_ptr(): storage.nbytes() for storage in dense}


def listed(names: Sequence[str], most: int = 3) -> str:
    """The first names, in a sentence: ``a, b, c and 2 more``."""
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")


def fresh_copy(value: Any, device: torch.device, cast: torch.dtype | None) -> Any:
    """An independent copy on ``device``; floating tensors are cast, others keep their type."""

    def own(tensor: torch.Tensor) -> torch.Tensor:
        copied = cast_values(tensor.detach().clone(), cast)
        return copied.to(device).requires_grad_(tensor.requires_grad)

    return map_tensors(value, own)


def in_channels_last(tensor: torch.Tensor) -> torch.Tensor:
    """A tensor of four dimensions in channels-last order; others as they are."""
    if tensor.dim() != IMAGE_DIMENSIONS or tensor.layout is not torch.strided:
        return tensor
    moved = tensor.detach().contiguous(memory_format=torch.channels_last)
    return moved.requires_grad_(tensor.requires_grad)


def module_in_channels_last(module: torch.nn.Module) -> None:
    """``in_channels_last`` for every parameter and buffer. ``Module.to`` refuses those of five dimensions."""
    for tensor in (*module.parameters(), *module.buffers()):
        tensor.data = in_channels_last(tensor.data)


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
