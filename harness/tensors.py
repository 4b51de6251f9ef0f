"""Walking nested values: inputs to move and cast, outputs to compare."""

from __future__ import annotations

import copy
import dataclasses
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import Enum
from functools import partial
from types import BuiltinFunctionType, FunctionType, MemberDescriptorType, MethodType, ModuleType
from typing import Any

import torch

Tensors = Mapping[str, torch.Tensor]
"""By name."""
IMAGE_DIMENSIONS = 4  # of what has a channels-last order
CANNOT = "torchduet cannot compare it; return what has values, or leave it out of the output"
DEEPEST = 8  # containers inside each other: an object may contain itself
PLAIN = (bool, int, float, complex, str, bytes, type(None), torch.dtype, torch.device, Enum)
CODE = (torch.nn.Module, type, ModuleType, FunctionType, MethodType, BuiltinFunctionType, partial)
SLOT = MemberDescriptorType


class NoValuesError(TypeError):
    """A tensor that cannot be compared."""


def map_tensors(  # noqa: PLR0911 - one for each kind of container
    value: Any, change: Callable[[torch.Tensor], torch.Tensor], copies: dict[int, Any] | None = None
) -> Any:
    """``value`` with every tensor replaced by ``change(tensor)``; arrays and generators are copied.

    Looks into what ``named_tensors`` looks into. Mappings that cannot be copied come back as dicts.
    ``TypeError`` with a sentence for another object that holds tensors and cannot be copied.
    """
    if isinstance(value, torch.Tensor):
        return change(value)
    copies = {} if copies is None else copies  # copies of objects, by the originals' ids
    if isinstance(value, (*PLAIN, *CODE)) or id(value) in copies:
        return copies.get(id(value), value)
    again = partial(map_tensors, change=change, copies=copies)
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        items = [again(item) for item in value]
        if isinstance(value, torch.nn.utils.rnn.PackedSequence):
            items[1] = items[1].cpu()  # the batch sizes, wherever the data are
        return type(value)(*items)
    if isinstance(value, (tuple, set, frozenset)) or type(value) is list:
        return type(value)([again(item) for item in value])
    if isinstance(value, dict) and dataclasses.is_dataclass(value):  # of transformers
        return type(value)(**{key: again(item) for key, item in value.items()})
    try:
        return _copied(value, again, copies)
    except Exception as error:
        if isinstance(value, Mapping):
            return {key: again(item) for key, item in value.items()}
        if next(named_tensors(value, ""), None) is None:
            return value
        raise TypeError(
            f"an object of the class {type(value).__qualname__} holds tensors and cannot be copied "
            f"({type(error).__name__}: {error}): give its tensors in tuples, dicts or dataclasses"
        ) from error


def _copied(value: Any, again: Callable[[Any], Any], copies: dict[int, Any]) -> Any:
    """A copy of any other object, with ``again`` of what it holds."""
    if isinstance(value, torch.Generator):  # torch 2.0 has no copy of it
        copies[id(value)] = torch.Generator(value.device).set_state(value.get_state())
        return copies[id(value)]
    held, holds = attributes(value), isinstance(value, (list, deque, dict))
    copied = copies[id(value)] = copy.copy(value) if held or holds else copy.deepcopy(value)
    if isinstance(value, dict):
        copied.update({key: again(item) for key, item in value.items()})
    elif holds:
        copied.clear()
        copied.extend([again(item) for item in value])
    for name, item in held.items() if copied is not value else ():
        # a frozen class has no setter, and its __init__ may check more than tensors
        object.__setattr__(copied, name, again(item))
    return copied


def attributes(value: object) -> dict[str, Any]:
    """What an object of any class holds, by name; {} of code and of what the class defines."""
    if isinstance(value, (*PLAIN, *CODE)):
        return {}
    own = [vars(kind) for kind in type(value).__mro__]
    slots = [n for names in own if "__slots__" in names for n, m in names.items() if isinstance(m, SLOT)]
    held = {name: getattr(value, name) for name in slots if hasattr(value, name)}
    return {**held, **getattr(value, "__dict__", {})}


def named_tensors(value: Any, name: str, *, objects: bool = True) -> Iterator[tuple[str, torch.Tensor]]:
    """Every tensor in ``value`` with a name that says where it was. Other leaves are skipped.

    Looks into containers, mappings and dataclasses, and into other ``objects``. A tensor that occurs twice is
    yielded twice.
    """
    leaves = named_leaves(value, name, objects=objects)
    return ((place, leaf) for place, leaf in leaves if isinstance(leaf, torch.Tensor))


def named_leaves(
    value: Any, name: str, *, objects: bool = True, depth: int = 0, seen: set[int] | None = None
) -> Iterator[tuple[str, Any]]:
    """Everything in ``value`` that holds nothing else. ``objects``: looks into other objects, too, once each.

    Of the code in these, such as a class, nothing is yielded.
    """
    if objects and seen is None:  # Dynamo of torch 2.0 traces no set
        seen = set()
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
    elif objects and isinstance(value, deque):
        inside = enumerate(value)
    elif seen is not None and depth < DEEPEST and id(value) not in seen and (held := attributes(value)):
        seen.add(id(value))
        inside = ((key, item) for key, item in held.items() if not isinstance(item, CODE))
    else:
        yield name, value
        return
    for key, item in inside:
        yield from named_leaves(item, f"{name}.{key}", objects=objects, depth=depth + 1, seen=seen)


def as_tensor(leaf: Any) -> torch.Tensor | None:
    """A tensor, an array of numpy, or a floating number, as a tensor; None for what is no such number."""
    if isinstance(leaf, torch.Tensor):
        return leaf
    if isinstance(leaf, float):
        return torch.tensor(leaf, dtype=torch.float64, device="cpu")
    if type(leaf).__module__ != "numpy":
        return None
    try:
        return torch.as_tensor(leaf.copy(), device="cpu")
    except TypeError:  # of texts, of objects
        return None


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
    return not tensor._is_zerotensor()  # noqa: SLF001 - torch has no other name


def shape_of(tensor: torch.Tensor) -> tuple[Any, ...]:
    """The sizes; of a nested tensor, those of its components."""
    return tuple(tuple(part.shape) for part in tensor.unbind()) if tensor.is_nested else tuple(tensor.shape)


def dense_parts(name: str, tensor: torch.Tensor) -> Iterator[tuple[str, torch.Tensor]]:
    """Dense tensors, by name, that hold the same values; of a nested tensor, its components, too.

    ``NoValuesError`` with a sentence for a tensor that holds no values which could be read.
    """
    if tensor.is_nested:
        parts = tensor.unbind()
        yield f"{name}.sizes", torch.tensor([list(part.shape) for part in parts], device=tensor.device)
        yield (
            f"{name}.values",
            torch.cat([part.flatten() for part in parts]) if parts else tensor.new_empty(0),
        )
    elif isinstance(tensor, torch.masked.MaskedTensor):
        mask: torch.Tensor = tensor._masked_mask  # noqa: SLF001 - get_mask() has no types
        yield f"{name}.mask", mask
        yield name, tensor._masked_data.masked_fill(~mask, 0)  # noqa: SLF001
    elif tensor.is_meta:
        raise NoValuesError(f"{name} is on the device meta, which holds no values: {CANNOT}")
    elif tensor._is_zerotensor():  # noqa: SLF001
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

    for name, leaf in named_leaves(value, "given"):
        if isinstance(leaf, torch.nn.Module) and (*leaf.parameters(), *leaf.buffers()):
            raise TypeError(
                f"{name.partition('.')[2]} is a module ({type(leaf).__qualname__}), which all variants would "
                "share: let the model hold it, or use it in the function by its name"
            )

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
