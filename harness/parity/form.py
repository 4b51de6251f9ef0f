"""The form of a step's results: what must be equal without any tolerance, because no rounding changes it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from harness.parity.measure import same_bits
from harness.tensors import Tensors, named_leaves, named_tensors
from harness.timing.step import Take, Variant

PLAIN = (bool, int, float, str, bytes, type(None))
SHOWN = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """Of one step's output. ``aliases``: the inputs, weights and buffers that share a tensor's memory."""

    leaves: Mapping[str, Any]
    shapes: Mapping[str, tuple[torch.Size, torch.dtype]]
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
            shapes={name: (tensor.shape, tensor.dtype) for name, tensor in tensors.items()},
            strides={name: _strides(tensor) for name, tensor in strided.items()},
            aliases={name: frozenset(owners.get(_address(t), ())) for name, t in strided.items()},
        )


def wrong_forms(eager: Form, candidate: Form) -> Iterator[tuple[str, str]]:
    """The name of each output whose form is wrong, and a sentence."""
    for name, value in eager.leaves.items():
        other = candidate.leaves.get(name, value)
        if type(other) is not type(value) or str(other) != str(value):
            yield name, f"{other!r} instead of {value!r}"
    for name in eager.shapes.keys() & candidate.shapes.keys():
        ours, theirs = (" ".join(map(str, form.shapes[name])) for form in (eager, candidate))
        if ours != theirs:
            yield name, f"{theirs} instead of {ours}"
    for name in eager.aliases.keys() & candidate.aliases.keys():
        before, now = eager.aliases[name], candidate.aliases[name]
        if bool(before) != bool(now):
            which = ", ".join(sorted(before or now)[:SHOWN])
            yield name, f"{'no longer ' if before else ''}shares its memory with {which}"


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


def overwritten(kept: Tensors, output: Any, take: Take) -> Iterator[str]:
    """The tensors of an earlier call's ``output`` that a later call has changed since they were ``kept``."""
    for name, tensor in named_tensors(output, "output"):
        if name in kept and tensor.layout is torch.strided and not same_bits(take(name, tensor), kept[name]):
            yield name


def _given(variant: Variant) -> Iterator[tuple[str, torch.Tensor]]:
    yield from variant.state()
    yield from ((f"buffer.{name}", buffer) for name, buffer in variant.program.module.named_buffers())


def _address(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage().data_ptr()


def _strides(tensor: torch.Tensor) -> tuple[int, ...]:
    """Of dimensions that have more than one place: the others' mean nothing."""
    return tuple(stride for stride, size in zip(tensor.stride(), tensor.shape, strict=True) if size > 1)
