"""The state of a variant: what its steps change, and how it is put back."""

from __future__ import annotations

import contextlib
import copy
import pickle
import random
from collections import deque
from collections.abc import Callable, Collection, Iterator
from functools import partial
from typing import Any

import torch

from harness.program import Program
from harness.tensors import (
    CODE,
    PLAIN,
    attributes,
    has_memory,
    inner_tensors,
    named_tensors,
    shape_of,
    storages,
)
from harness.timing.optimizer import Update

REGISTERED = ("_parameters", "_buffers", "_modules")
MISSING = object()
CONTAINERS = (dict, list, tuple, set, deque)
Access = tuple[Callable[[], Any], Callable[[Any], object]]
"""How to read and to write what an object holds."""


class State:
    """Of one variant: its buffers and inputs, and with an optimizer its weights and the optimizer's state.

    Make it before a compiler sees the program: tracing runs the program and changes its buffers.
    """

    def __init__(self, program: Program) -> None:
        self.program = program
        self.kept: Kept | None = None  # what is put back besides
        self._update: Update | None = None  # of a training step
        self._initial: dict[str, torch.Tensor] = {}

    def remember(self) -> None:
        """Saves the present buffers and inputs for ``restore``."""
        self._initial = {name: tensor.detach().clone() for name, tensor in self._mutable()}

    def restore(self) -> None:
        """Restores the saved buffers and inputs in place, because compiled code keeps their addresses.

        With an optimizer, weights and its state, too.
        """
        self._put_back()
        if self._update is not None:
            self._update.restart()

    @property
    def rewinds(self) -> bool:
        """Whether each sample begins with the same weights, because its steps change them, or other state."""
        return self._update is not None or self.kept is not None

    @property
    def drifts(self) -> bool:
        """Whether later steps of a sample differ from sample to sample, by an optimizer of the user's own."""
        return self.program.optimizer is not None

    def rewind(self) -> None:
        """Before each sample: all do the same work."""
        if self.rewinds:
            self._put_back()

    def _put_back(self) -> None:
        if self.kept is not None:
            self.kept.put_back()
        with torch.no_grad():
            for name, tensor in self._mutable():
                before = self._initial.get(name)
                if before is not None and shape_of(tensor) == shape_of(before):
                    tensor.copy_(before)

    def _mutable(self) -> Iterator[tuple[str, torch.Tensor]]:
        """The tensors that a step may change in place, by name."""
        yield from named_tensors(self.program.given(), "given")
        for name, buffer in self.program.module.named_buffers():
            yield f"buffer.{name}", buffer
        if self._update is not None:
            yield from ((f"parameter.{name}", weight) for name, weight in self._update.weights.items())
            yield from self._update.state()

    def state(self) -> Iterator[tuple[str, torch.Tensor]]:
        """The weights and inputs, which most steps leave as they are, by name."""
        for name, parameter in self.program.module.named_parameters():
            yield from inner_tensors(f"parameter.{name}", parameter.data)
        inputs = named_tensors((self.program.args, dict(self.program.kwargs)), "input")
        for name, tensor in (*inputs, *named_tensors(self.program.target, "target")):
            if has_memory(tensor):  # a sparse one has none that could be compared
                yield name, tensor

    def release(self) -> None:
        """Drops the gradients that the last step left."""
        self.program.module.zero_grad(set_to_none=True)
        for _, tensor in named_tensors(self.program.given(), "given"):
            tensor.grad = None

    def persistent_bytes(self) -> int:
        """Bytes of parameters, buffers, inputs and the optimizer's state, which exist before a step.

        Each storage counts once.
        """
        tensors = [*self.program.module.parameters(), *self.program.module.buffers()]
        tensors += [state for _, state in self._update.state()] if self._update is not None else []
        own = self.program.args, self.program.kwargs, self.program.target
        tensors += [t for _, t in named_tensors(own, "given")]
        return sum(storages(part for tensor in tensors for _, part in inner_tensors("", tensor)).values())


class Kept:
    """What a model keeps beside parameters and buffers: tensors, lists, counters, generators in attributes.

    And what it keeps in objects that are given to it. A step may change it: then it goes on from call to
    call. This is the present state, by the name of an attribute. ``names``: of these alone; None: of all.
    """

    def __init__(self, program: Program, names: Collection[str] | None = None) -> None:
        tensors = (*program.module.parameters(), *program.module.buffers())
        given = (tensor for _, tensor in named_tensors(program.given(), "given"))
        self._seen = set(map(id, (*tensors, *given)))  # which are put back elsewhere
        self.names = names
        self._parts: dict[str, torch.nn.Module] = dict(program.module.named_modules())
        self._attributes = self._present()
        self._contents: list[tuple[str, Access, Any]] = []
        self._others = dict[str, Any]()  # copies of what has no access
        inputs = {"the inputs": [*program.given()]} if names is None or "the inputs" in names else {}
        for name, value in {**self._attributes, **inputs}.items():
            self._save(name, value)

    def _present(self) -> dict[str, Any]:
        return {
            name: value
            for path, part in self._parts.items()
            for key, value in vars(part).items()
            for name in (f"{path}.{key}" if path else key,)
            if key not in REGISTERED and (self.names is None or name in self.names)
        }

    def _save(self, name: str, value: Any) -> None:
        if id(value) in self._seen or isinstance(value, (*PLAIN, *CODE)):
            return
        self._seen.add(id(value))
        if (access := _access(value)) is not None:
            self._contents.append((name, access, access[0]()))
        elif self._attributes.get(name) is value and not isinstance(value, (tuple, torch.Tensor)):
            with contextlib.suppress(Exception):  # of an iterator, say
                self._others[name] = copy.deepcopy(value)
        items = value.values() if isinstance(value, dict) else value if isinstance(value, CONTAINERS) else ()
        held = {} if isinstance(value, torch.Tensor) else attributes(value)
        for item in (*items, *held.values()):
            self._save(name, item)

    def moved(self) -> tuple[str, ...]:
        """The names of what has changed."""
        now, before = self._present(), self._attributes
        names = [n for n in {**before, **now} if not _same(before.get(n, MISSING), now.get(n, MISSING))]
        names += [name for name, held in self._others.items() if held != now.get(name)]
        names += [name for name, (read, _), held in self._contents if not _equal(held, read())]
        return tuple(dict.fromkeys(names))

    def put_back(self) -> None:
        """In place, because compiled code keeps addresses."""
        before = {**self._attributes, **copy.deepcopy(self._others)}
        for name in {**self._present(), **before}:
            path, _, key = name.rpartition(".")
            held = vars(self._parts[path])
            if name in before:
                held[key] = before[name]
            else:
                del held[key]
        with torch.no_grad():
            for _, (read, write), held in self._contents:
                if not _equal(held, read()):
                    write(held)


def _access(value: Any) -> Access | None:  # noqa: PLR0911 - one for each kind
    """Of an object that can be changed in place."""
    if isinstance(value, torch.Tensor):
        plain = value.detach()
        return (plain.clone, plain.copy_) if has_memory(value) else None
    if isinstance(value, torch.Generator):
        return value.get_state, value.set_state
    if isinstance(value, random.Random):
        return value.getstate, value.setstate
    if hasattr(value, "bit_generator"):  # of numpy
        bits = value.bit_generator
        return lambda: pickle.dumps(bits.state), lambda held: setattr(bits, "state", pickle.loads(held))  # noqa: S301 - of dumps
    if hasattr(value, "tobytes"):  # an array
        return value.copy, partial(value.__setitem__, ...)
    if isinstance(value, CONTAINERS) and not isinstance(value, tuple):
        add = value.update if isinstance(value, (dict, set)) else value.extend
        return partial(copy.copy, value), lambda held: (value.clear(), add(held))
    return (partial(attributes, value), partial(_set_attributes, value)) if attributes(value) else None


def _set_attributes(value: object, held: dict[str, Any]) -> None:
    for name in attributes(value).keys() - held.keys():
        object.__delattr__(value, name)
    for name, item in held.items():
        object.__setattr__(value, name, item)


def _same(before: Any, now: Any) -> bool:
    return before is now or (type(before) is type(now) and isinstance(before, PLAIN) and before == now)


def _equal(before: Any, now: Any) -> bool:
    """Whether an object holds what it held. What is inside of these is looked at by itself."""
    if isinstance(before, torch.Tensor):
        return torch.equal(before, now)
    if isinstance(before, dict):
        return list(before) == list(now) and all(map(_same, before.values(), now.values()))
    if isinstance(before, (list, deque)):
        return len(before) == len(now) and all(map(_same, before, now))
    return bool(before.tobytes() == now.tobytes() if hasattr(before, "tobytes") else before == now)
