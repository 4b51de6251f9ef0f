"""What a model keeps beside parameters and buffers: tensors, lists, counters, generators in its attributes.

And what it keeps in objects that are given to it. A step may change it: then it goes on from call to call.
"""

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
from harness.tensors import CODE, PLAIN, attributes, has_memory, named_tensors

REGISTERED = ("_parameters", "_buffers", "_modules")
MISSING = object()
CONTAINERS = (dict, list, tuple, set, deque)
Access = tuple[Callable[[], Any], Callable[[Any], object]]
"""How to read and to write what an object holds."""


class Kept:
    """The present state, by the name of an attribute. ``names``: of these alone; None: of all."""

    def __init__(self, program: Program, names: Collection[str] | None = None) -> None:
        tensors = (*program.module.parameters(), *program.module.buffers())
        given = (tensor for _, tensor in named_tensors(program.given(), "given"))
        self._seen = set(map(id, (*tensors, *given)))  # which are put back elsewhere
        self.names = names
        self._parts = {f"{path}." if path else "": part for path, part in program.module.named_modules()}
        self._attributes = self._present()
        self._contents: list[tuple[str, Access, Any]] = []
        self._others = dict[str, Any]()  # copies of what has no access
        for name, value in self._attributes.items():
            self._save(name, value)
        if names is None or "the inputs" in names:
            self._save("the inputs", [*program.given()])

    def _present(self) -> dict[str, Any]:
        return {
            f"{prefix}{key}": value
            for prefix, part in self._parts.items()
            for key, value in vars(part).items()
            if key not in REGISTERED and (self.names is None or f"{prefix}{key}" in self.names)
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
        for item in _inside(value):
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
        before = {**self._attributes, **{n: copy.deepcopy(value) for n, value in self._others.items()}}
        for name in {**self._present(), **before}:
            path, _, key = name.rpartition(".")
            held = vars(self._parts[f"{path}." if path else ""])
            if name not in before:
                del held[key]
            elif held.get(key, MISSING) is not before[name]:
                held[key] = before[name]
        with torch.no_grad():
            for _, (read, write), held in self._contents:
                if not _equal(held, read()):
                    write(held)


def _inside(value: Any) -> Iterator[Any]:
    if isinstance(value, CONTAINERS):
        yield from value.values() if isinstance(value, dict) else value
    if not isinstance(value, torch.Tensor):
        yield from attributes(value).values()


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
        return (
            lambda: pickle.dumps(bits.state),
            lambda state: setattr(bits, "state", pickle.loads(state)),  # noqa: S301 - what is written above
        )
    if hasattr(value, "tobytes"):  # an array
        return value.copy, lambda held: value.__setitem__(..., held)
    if isinstance(value, CONTAINERS) and not isinstance(value, tuple):
        add = value.update if isinstance(value, (dict, set)) else value.extend
        return partial(copy.copy, value), lambda held: (value.clear(), add(held))
    if attributes(value):
        return lambda: attributes(value), lambda held: _set_attributes(value, held)
    return None


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
        return list(before) == list(now) and all(_same(before[key], now[key]) for key in before)
    if isinstance(before, (list, deque)):
        return len(before) == len(now) and all(map(_same, before, now))
    return bool(before.tobytes() == now.tobytes() if hasattr(before, "tobytes") else before == now)
