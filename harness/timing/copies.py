"""Copies of a workload that share nothing with it.

``deepcopy`` keeps functions and weak references as they are. So what the closure, the defaults and the global
names of a hook find would be parts of the original.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import operator
import types
import weakref
from collections.abc import Iterator
from typing import Any

import torch
from torch.utils.hooks import RemovableHandle

from harness.devices import of
from harness.failures import JobFailed
from harness.loading.dropout import neutralize
from harness.loading.own_model_build import globals_of, holds
from harness.loading.plain_model import WRAPPED, in_mode, unwrapped
from harness.program import Program
from harness.schema import CompilerOptions, Failure, Status
from harness.tensors import (
    cast_module,
    fresh_copy,
    in_channels_last,
    listed,
    map_tensors,
    module_in_channels_last,
    named_tensors,
)
from harness.workload import Workload

NARROWER = (torch.float32, torch.bfloat16, torch.float16)  # a cast of these to fp64 makes a copy


def replica(
    workload: Workload,
    device: torch.device,
    cast: torch.dtype | None,
    *,
    training: bool,
    exact: bool = False,
    eval_mode: bool = False,
    keep_dropout: bool = False,
    channels_last: bool = False,
    options: CompilerOptions | None = None,
    loss_scale: float = 1.0,
) -> Program:
    """A fresh copy of the workload on the device.

    ``exact`` widens it to fp64 *after* the cast, so that the reference has the weights and inputs of the
    timed variants.
    """
    # the cast comes before the move, and copies parameter by parameter: a copy needs no more than it keeps
    shares = exact or (cast is not None and of(device).accelerated)
    module = copied(workload.module, _unowned(workload.module, None if exact else cast) if shares else {})
    if cast is not None:
        cast_module(module, cast)
    module = module.to(device)
    if exact:
        cast_module(module, torch.float64)
    if channels_last:
        module_in_channels_last(module)
    module, compiled = unwrapped(module, workload.module)
    said = (
        [f"unwrapped from torch.compile, for eager must be eager: {', '.join(compiled)}"] if compiled else []
    )
    trains = training and not eval_mode
    others = in_mode(module, training=trains)
    rates = () if keep_dropout else neutralize(module)
    if others:
        said.append(f"left in {'eval' if trains else 'training'} mode, as given: {listed(others)}")
    return Program(
        module=module,
        **given_of(workload, device, cast, exact=exact, channels_last=channels_last),
        loss=workload.loss,
        training=training,
        drive=workload.drive,
        options=options or CompilerOptions(),
        said=tuple(said),
        rates=rates,
        loss_scale=loss_scale,
        optimizer=workload.optimizer,
    )


def given_of(
    workload: Workload, device: torch.device, cast: torch.dtype | None, *, exact: bool, channels_last: bool
) -> dict[str, Any]:
    """Fresh copies of the workload's inputs and target on the device: the program's fields of these names."""
    given = {"args": workload.args, "kwargs": dict(workload.kwargs), "target": workload.target}
    try:
        given = {name: fresh_copy(value, device, cast) for name, value in given.items()}
    except TypeError as error:
        raise _unloaded(f"the inputs, or the target, cannot be copied for each compiler: {error}") from error
    if exact:  # after the cast, see ``replica``
        given = {name: fresh_copy(value, device, torch.float64) for name, value in given.items()}
    if channels_last:
        given = {name: map_tensors(value, in_channels_last) for name, value in given.items()}
    return given


def _unowned(module: torch.nn.Module, cast: torch.dtype | None) -> dict[int, Any]:
    """A memo for ``deepcopy``: the copied parameters share memory until ``cast_module`` copies them.

    ``cast``: to this type; None: to fp64.
    """
    return {
        id(parameter): torch.nn.Parameter(parameter.detach(), parameter.requires_grad)
        for parameter in module.parameters()
        if type(parameter) is torch.nn.Parameter and parameter.dtype in NARROWER and parameter.dtype != cast
    }


def copied(module: torch.nn.Module, known: dict[int, Any]) -> torch.nn.Module:
    """A deep copy. Without no_grad, a scripted module's parameters would stay in the original's graph.

    ``known``: copies that exist already, by the originals' ids. ``JobFailed`` with a sentence for a function
    of the model that finds a module which the model does not hold.
    """
    again = _Again(known)
    try:
        with torch.no_grad():
            twin = copy.deepcopy(module, known)
            again.in_all_copies()
    except RuntimeError as error:
        if where := next(_computed(module), None):
            raise TypeError(
                f"torch cannot copy the model: it keeps the tensor {where}, made from others that "
                f"require a gradient; compute it in forward, or keep {where}.detach()"
            ) from error
        raise
    for ours, theirs in zip(twin.parameters(), module.parameters(), strict=True):
        if ours.requires_grad != theirs.requires_grad:
            ours.requires_grad_(theirs.requires_grad)
        for hook in (theirs._backward_hooks or {}).values():  # noqa: SLF001 - a copy has none
            ours.register_hook(again.of(hook))  # type: ignore[no-untyped-call] # of torch
    return twin


def _computed(module: torch.nn.Module) -> Iterator[str]:
    """The names of the tensors in attributes and buffers that are no leaves of autograd's graph."""
    for name, part in module.named_modules():
        for place, tensor in named_tensors(dict(vars(part)), name):
            if not tensor.is_leaf:
                yield place.replace("_buffers.", "").lstrip(".")


class _Again:
    """Makes functions again, with the copies of what they refer to. ``copies``: by the originals' ids."""

    def __init__(self, copies: dict[int, Any]) -> None:
        self._copies = copies

    def in_all_copies(self) -> None:
        """Replaces functions and weak references in each object that ``deepcopy`` has made."""
        done = {id(self._copies)}  # where deepcopy keeps the originals
        while keys := self._copies.keys() - done:
            done |= keys
            for value in map(self._copies.__getitem__, keys):
                if isinstance(value, functools.partial):
                    state = self.of(value.func), value.args, value.keywords, vars(value)
                    value.__setstate__(state)  # type: ignore[attr-defined] # of C
                if isinstance(value, types.FunctionType):  # which may be the original itself
                    continue
                held = value if isinstance(value, (dict, list)) else getattr(value, "__dict__", {})
                for place, item in [*(enumerate(held) if isinstance(held, list) else held.items())]:
                    if (changed := self.of(item)) is not item:
                        held[place] = changed

    def of(self, value: Any) -> Any:
        """``value``, or what takes its place in the copy."""
        if id(value) in self._copies:
            return self._copies[id(value)]
        if isinstance(value, weakref.ref):
            target = self._copies.get(id(value()))
            return value if target is None else weakref.ref(target)
        if isinstance(value, types.MethodType):
            function, owner = self.of(value.__func__), self.of(value.__self__)
            same = function is value.__func__ and owner is value.__self__
            return value if same else types.MethodType(function, owner)
        if type(value) is tuple:
            items = tuple(map(self.of, value))
            return value if all(map(lambda a, b: a is b, items, value)) else items
        if isinstance(value, types.FunctionType) and not hasattr(value, WRAPPED):
            return self._function(value)
        return value

    def _function(self, function: types.FunctionType) -> types.FunctionType:
        self._copies[id(function)] = function  # it may refer to itself
        outside = function.__globals__
        names = {name: outside[name] for name in globals_of(function.__code__) & outside.keys()}
        changed = {n: self._copies[id(value)] for n, value in names.items() if id(value) in self._copies}
        for name in names.keys() - changed.keys():
            if isinstance(names[name], torch.Tensor) and names[name].requires_grad:
                changed[name] = self._reached(function, name, names[name])
            elif holds(names[name], 1):
                raise _refused(function, name)
        cells = function.__closure__ or ()
        closure = tuple(map(self._cell, (function,) * len(cells), function.__code__.co_freevars, cells))
        given = function.__defaults__ or (), tuple((function.__kwdefaults__ or {}).items())
        defaults = self._reached(function, "its defaults", given)
        if changed or defaults is not given or any(map(operator.is_not, closure, cells)):
            names = {**outside, **changed} if changed else outside
            if changed:  # with its name, Dynamo takes the names of the module that was imported
                names.pop("__name__", None)
            again = types.FunctionType(
                function.__code__, names, function.__name__, defaults[0] or None, closure
            )
            again.__kwdefaults__ = dict(defaults[1]) or None
            again.__dict__.update(function.__dict__)
            self._copies[id(function)] = again
        return self._copies[id(function)]  # type: ignore[no-any-return]

    def _cell(self, function: types.FunctionType, name: str, cell: types.CellType) -> types.CellType:
        place = id(cell)
        with contextlib.suppress(ValueError):  # the variable has no value yet
            value = cell.cell_contents
            if place not in self._copies and (changed := self._reached(function, name, value)) is not value:
                self._copies[place] = types.CellType(changed)
        return self._copies.get(place, cell)  # type: ignore[no-any-return]

    def _reached(self, function: types.FunctionType, name: str, value: Any) -> Any:
        """``of`` what a function finds; of an object that holds parts of the model, a deep copy.

        What holds none, such as a dictionary that the class of the model finds, too, stays as it is.
        """
        if (changed := self.of(value)) is not value or isinstance(value, (types.FunctionType, tuple)):
            return changed
        if not isinstance(value, RemovableHandle) and not holds(value):
            return value
        before = self._copies.keys() | ()
        try:
            changed = copy.deepcopy(value, self._copies)
        except Exception as error:
            raise _refused(function, name) from error
        new = (self._copies[key] for key in self._copies.keys() - before)
        for part in (part for part in new if isinstance(part, torch.nn.Module)):
            if [*part.parameters(recurse=False), *part.buffers(recurse=False)]:
                raise _refused(function, name)
        return changed


def _refused(function: types.FunctionType, name: str) -> JobFailed:
    return _unloaded(
        f"the model cannot be copied for each compiler: its function {function.__qualname__} uses {name}, "
        "with a module or a tensor that requires a gradient, which is no part of the model: make it an "
        "attribute of the model"
    )


def _unloaded(sentence: str) -> JobFailed:
    """For what this program cannot measure."""
    return JobFailed(Status.MODEL_FAIL_TO_LOAD, Failure(kind="TypeError", message=sentence, phase="open"))
