"""The form of a step's results: what must be equal without any tolerance, because no rounding changes it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from harness.tensors import named_leaves, named_tensors
from harness.timing.step import Variant

PLAIN = (bool, int, float, str, bytes, type(None))
SHOWN = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """Of one step's output. ``aliases``: the inputs, weights and buffers that share a tensor's memory."""

    leaves: Mapping[str, Any]
    strides: Mapping[str, tuple[int, ...]]
    aliases: Mapping[str, frozenset[str]]

    @classmethod
    def of(cls, variant: Variant, output: Any) -> Form:
        owners = dict[int, set[str]]()
        for name, tensor in _given(variant):
            if tensor.layout is torch.strided and tensor.numel():
                owners.setdefault(_address(tensor), set()).add(name)
        tensors = dict(named_tensors(output, "output"))
        plain = {n: v for n, v in named_leaves(output, "output") if isinstance(v, PLAIN)}
        strided = {n: t for n, t in tensors.items() if t.layout is torch.strided and t.numel()}
        return cls(
            leaves=plain,
            strides={name: _strides(tensor) for name, tensor in strided.items()},
            aliases={name: frozenset(owners.get(_address(t), ())) for name, t in strided.items()},
        )


def wrong_forms(eager: Form, candidate: Form) -> Iterator[tuple[str, str]]:
    """The name of each output whose form is wrong, and a sentence."""
    for name, value in eager.leaves.items():
        other = candidate.leaves.get(name, value)
        if type(other) is not type(value) or str(other) != str(value):
            yield name, f"{other!r} instead of {value!r}"
    for name in eager.aliases.keys() & candidate.aliases.keys():
        ours, theirs = eager.aliases[name], candidate.aliases[name]
        if bool(ours) != bool(theirs):
            which = ", ".join(sorted(ours or theirs)[:SHOWN])
            yield name, f"{'no longer ' if ours else ''}shares its memory with {which}"


def other_strides(eager: Form, candidate: Form) -> str:
    """A note on outputs with another layout; "" if there are none."""
    names = [
        name for name, strides in eager.strides.items() if candidate.strides.get(name, strides) != strides
    ]
    if not names:
        return ""
    first = names[0]
    more = f", and {len(names) - 1} more" if len(names) > 1 else ""
    return f"{first} has strides {candidate.strides[first]}, eager's {eager.strides[first]}{more}"


def overwritten(first: Any, copies: Mapping[str, torch.Tensor]) -> Iterator[str]:
    """The outputs of an earlier call that a later call has changed.

    ``copies``: as they were after their call.
    """
    for name, tensor in named_tensors(first, "output"):
        copy = copies.get(name)
        if copy is not None and copy.shape == tensor.shape and not _equal(tensor.detach(), copy):
            yield name


def _equal(left: torch.Tensor, right: torch.Tensor) -> bool:
    if left.layout is not torch.strided:
        return True
    return torch.equal(left, right) or bool(((left == right) | (left.isnan() & right.isnan())).all())


def _given(variant: Variant) -> Iterator[tuple[str, torch.Tensor]]:
    yield from variant.state()
    yield from ((f"buffer.{name}", buffer) for name, buffer in variant.program.module.named_buffers())


def _address(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage().data_ptr()


def _strides(tensor: torch.Tensor) -> tuple[int, ...]:
    """Of dimensions that have more than one place: the others' mean nothing."""
    return tuple(stride for stride, size in zip(tensor.stride(), tensor.shape, strict=True) if size > 1)
