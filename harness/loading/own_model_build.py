"""Calls the function of ``--model`` and makes a workload of its result. ``own_model`` states the rules."""

from __future__ import annotations

import contextlib
import difflib
import dis
import functools
import importlib
import inspect
import types
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import torch

from harness.loading.input_checks import loss_of_two
from harness.loading.losses import loss_of_output
from harness.loading.plain_model import WRAPPED
from harness.loading.python_file import load_file
from harness.loading.torchvision_ops import mend_torchvision
from harness.schema import Case, Mode
from harness.tensors import named_tensors
from harness.workload import Workload


def build(spec: str, case: Case) -> Workload:
    """The workload of ``module:function``. ``LookupError`` or ``TypeError`` with a sentence."""
    if case.config:
        raise LookupError(f"--model-config: {spec} has no configuration that can be changed")
    if case.pretrained:
        raise LookupError(f"--pretrained: {spec} has the weights that its function gives it")
    module, _, function = spec.rpartition(":")
    try:
        make = function_of(load_module(module), function, module)
    except LookupError as error:
        raise LookupError(f"--model: {error}") from None
    takes: Collection[str] = ()
    with contextlib.suppress(ValueError):  # a function of C may tell no signature
        takes = inspect.signature(make).parameters
    sizes = {"batch_size": case.batch_size, "sequence": case.sequence}
    given = {name: size for name, size in sizes.items() if size is not None}
    for name in given:
        if name not in takes:
            swept = name.removesuffix("_size") in case.at
            flag = "--sweep" if swept else "--shapes" if name == "sequence" else "--batch-size"
            raise LookupError(f"{flag}: {spec} has no parameter called {name}")
    tokens = {"prompt_tokens": case.prompt_tokens, "new_tokens": case.new_tokens}
    given |= {name: count for name, count in tokens.items() if count is not None and name in takes}
    try:
        with contextlib.suppress(ValueError):
            inspect.signature(make).bind(**given)
    except TypeError as error:
        raise TypeError(f"--model: {spec}: {error}; give it a default") from None
    workload = _as_workload(spec, make(**given))
    for name in tokens if case.mode is Mode.GENERATE else ():
        if name not in given and workload.drive is not None:  # reports name this number
            raise TypeError(f"--generate: {spec} has no parameter called {name}")
    return workload


def function_of(module: Any, name: str, place: str) -> Callable[..., Any]:
    """The function with this name. ``LookupError`` if the module, from this place, has none."""
    function = getattr(module, name, None)
    if callable(function):
        return function  # type: ignore[no-any-return]
    near = difflib.get_close_matches(name, [n for n in vars(module) if callable(vars(module)[n])])
    hint = f"; did you mean {' or '.join(near)}?" if near else ""
    raise LookupError(f"{place} has no function {name!r}{hint}")


def load_module(name: str) -> Any:
    """Imports a module by name or the user's file by path. ``LookupError`` if there is none."""
    mend_torchvision()
    if name.endswith(".py"):
        return load_file(Path(name))
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise  # the user's module exists, but imports a missing one
        raise LookupError(
            f"there is no module {name!r} here; give package.module:function, "
            "importable from the current folder, or file.py:function"
        ) from None


def _as_workload(spec: str, result: Any) -> Workload:
    try:
        if isinstance(result, Workload):
            return replace(result, loss=_loss(result.loss, result.target))
        if isinstance(result, tuple) and 2 <= len(result) <= 5:
            return workload_of(*result)
    except TypeError as error:
        raise TypeError(f"--model: {spec} returned a wrong {error}") from None
    raise TypeError(
        f"--model: {spec} returned a {type(result).__name__}; it must return (module, inputs), "
        "(module, inputs, loss) or (module, inputs, loss, target)"
    )


def workload_of(
    module: Any, inputs: Any, loss: Any = None, target: Any = None, batches: Any = None
) -> Workload:
    """A workload from the user's arguments. ``TypeError`` with a sentence for what cannot be measured."""
    if isinstance(module, type) or not callable(module):
        raise TypeError(f"model: it must be a torch.nn.Module or a function, not {_kind(module)}")
    if not isinstance(module, torch.nn.Module):
        module = Function(module, inputs)
    args, named = _arguments(inputs)
    return Workload(
        module=module,
        args=args,
        kwargs=named,
        target=target,
        loss=_loss(loss, target),
        batches=None if batches is None else _batches(batches, target),
    )


def _arguments(inputs: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    if isinstance(inputs, Mapping):
        return (), dict(inputs)
    return tuple(inputs) if isinstance(inputs, (tuple, list)) else (inputs,), {}


def _batches(batches: Any, target: Any) -> Callable[[int], tuple[Any, Any, Any]]:
    """A list begins anew at its end."""
    if not callable(batches) and not (isinstance(batches, (list, tuple)) and batches):
        raise TypeError(f"batches: give a list, or a function of the number of a step, not {_kind(batches)}")

    def given(step: int) -> tuple[Any, Any, Any]:
        batch = batches(step) if callable(batches) else batches[step % len(batches)]
        if target is None:
            return *_arguments(batch), None
        if not isinstance(batch, (list, tuple)) or len(batch) != 2:
            raise TypeError("batches: with a target, each is a pair of inputs and target")
        return *_arguments(batch[0]), batch[1]

    return given


LOOKED_AT = 100


class Function(torch.nn.Module):
    """A function as a module, so that each variant has a copy of what it uses.

    ``parts``: the modules that the function finds in its closure, defaults and global names, or whose method
    it is. A copy of this module calls the function with the copied parts. It is in training mode if a part
    is, or if an input requires a gradient. ``TypeError`` with a sentence for what variants would share: a
    tensor that requires a gradient and is no input, or a module that the function reaches through something
    else.
    """

    def __init__(self, function: Callable[..., Any], inputs: Any) -> None:
        super().__init__()
        self.function = called = getattr(function, WRAPPED, function)
        self.parts, self.names = torch.nn.ModuleList(), list[str]()  # a ModuleDict takes no name such as keys
        while isinstance(called, functools.partial):
            called = called.func
        routine = inspect.isroutine(called)
        for name, value in _outside(called if routine else type(called).__call__).items():
            if routine and isinstance(value, torch.nn.Module) and not _is_skeleton(value):
                self.names.append(name)
                self.parts.append(value)
            elif isinstance(value, torch.Tensor) and value.requires_grad:
                raise TypeError(
                    f"model: its tensor {name} requires a gradient: give it to the function as an input"
                )
            elif value is not getattr(called, "__self__", None) and holds(value):  # its copy has a copied one
                raise TypeError(
                    f"model: its {name} holds a module or a tensor that requires a gradient; variants would "
                    "share it: use the module by a name of its own in the function itself, without decorator "
                    "or helper, or give the tensor as an input (a skeleton for functional_call may be "
                    "shared, if it is on the device meta)"
                )
        given = any(tensor.requires_grad for _, tensor in named_tensors(inputs, "input"))
        self.training = given or any(part.training for part in self.parts)
        self.parts.training = self.training

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.function(*args, **kwargs)


def _outside(function: Any) -> dict[str, Any]:
    """What a function finds beside its arguments, by name: also their defaults, and "self" for a method."""
    plain = getattr(function, "__func__", function)
    values = {"self": function.__self__} if inspect.ismethod(function) else {}
    if not inspect.isfunction(plain):
        return values
    code, names = plain.__code__, plain.__globals__
    values |= {name: names[name] for name in sorted(globals_of(code) & names.keys())}
    for name, cell in zip(code.co_freevars, plain.__closure__ or (), strict=True):
        with contextlib.suppress(ValueError):  # the variable has no value yet
            values[name] = cell.cell_contents
    given = inspect.signature(plain, follow_wrapped=False).parameters.values()
    return {**values, **{p.name: p.default for p in given if p.default is not p.empty}}


def holds(value: Any, depth: int = 3) -> bool:
    """Whether this is or holds a module, or a tensor that requires a gradient, within so many steps.

    Of what holds many values, the first ``LOOKED_AT`` count.
    """
    if isinstance(value, torch.nn.Module):  # an activation has nothing that variants could change
        if _is_skeleton(value):
            return False
        state = (*value.parameters(), *value.buffers())
        return bool(state) or any("Dropout" in type(part).__name__ for part in value.modules())
    if isinstance(value, torch.Tensor):
        return value.requires_grad
    if isinstance(value, torch.optim.Optimizer):
        return True
    return depth > 0 and any(holds(part, depth - 1) for part in islice(_inside(value), LOOKED_AT))


def _is_skeleton(module: torch.nn.Module) -> bool:
    """Whether it holds no values: ``functional_call`` gives them, and variants may share it."""
    state = (*module.parameters(), *module.buffers())
    return bool(state) and all(tensor.is_meta for tensor in state)


def _inside(value: Any) -> Iterable[Any]:
    if isinstance(value, (list, tuple, set, frozenset)):
        return value
    if isinstance(value, dict):
        return value.values()
    if inspect.ismethod(value):
        return (value.__self__,)
    if inspect.isfunction(value):
        return _outside(value).values()
    if isinstance(value, (type, types.ModuleType)):
        return ()
    return getattr(value, "__dict__", {}).values()


def globals_of(code: types.CodeType) -> set[str]:
    """The names that this code, and the code inside of it, looks up in its module."""
    inner = (globals_of(part) for part in code.co_consts if isinstance(part, types.CodeType))
    names = {i.argval for i in dis.get_instructions(code) if i.opname in ("LOAD_GLOBAL", "LOAD_NAME")}
    return names.union(*inner)


def _kind(value: Any) -> str:
    return f"the class {value.__name__}" if isinstance(value, type) else f"of type {type(value).__name__}"


def _loss(loss: Any, target: Any) -> Callable[[Any, Any], Any]:
    if loss is None and target is None:
        return loss_of_output
    if loss is None:
        raise TypeError("target: no loss is given that uses it; give a loss of (output, target), too")
    if isinstance(loss, type) or not callable(loss):
        order = "; the order is (module, inputs, loss, target)" if callable(target) else ""
        raise TypeError(f"loss: it must be a function of (output, target), not {_kind(loss)}{order}")
    return loss_of_two(loss, target)
