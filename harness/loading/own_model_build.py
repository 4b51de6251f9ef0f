"""Calls the function of ``--model`` and makes a workload of its result. ``own_model`` states the rules."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from harness.loading.given import loss_of_two
from harness.loading.losses import loss_of_output
from harness.loading.python_file import load_file
from harness.loading.torchvision_ops import mend_torchvision
from harness.schema import Case
from harness.workload import Workload


def build(spec: str, module: str, function: str, case: Case) -> Workload:
    """The workload of ``function`` in ``module``. ``LookupError`` or ``TypeError`` with a sentence."""
    if case.config:
        raise LookupError(f"--model-config: {spec} has no configuration that can be changed")
    make = _find(module, function)
    if case.batch_size is None:
        result = make()
    elif "batch_size" in inspect.signature(make).parameters:
        result = make(batch_size=case.batch_size)
    else:
        raise TypeError(f"--batch-size: {spec} has no parameter called batch_size")
    return _as_workload(spec, result)


def _find(name: str, function: str) -> Callable[..., Any]:
    try:
        module = load_module(name)
    except LookupError as error:
        raise LookupError(f"--model: {error}") from None
    maker = getattr(module, function, None)
    if not callable(maker):
        raise LookupError(f"--model: {name!r} has no function {function!r}")  # noqa: TRY004
    return maker  # type: ignore[no-any-return]


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
    if isinstance(result, Workload):
        return result if result.loss is not None else replace(result, loss=_loss(None, result.target))
    if not isinstance(result, tuple) or len(result) not in (2, 3, 4):
        raise TypeError(
            f"--model: {spec} returned a {type(result).__name__}; it must return (module, inputs), "
            "(module, inputs, loss) or (module, inputs, loss, target)"
        )
    module, inputs, *rest = result
    loss, target = (*rest, None, None)[:2]
    try:
        return workload_of(module, inputs, loss, target)
    except TypeError as error:
        raise TypeError(f"--model: {spec} returned a wrong {error}") from None


def workload_of(module: Any, inputs: Any, loss: Any = None, target: Any = None) -> Workload:
    """A workload from the user's arguments. ``TypeError`` with a sentence for what cannot be measured."""
    if not isinstance(module, torch.nn.Module):
        raise TypeError(f"model: {_no_module(module)}")
    named = dict(inputs) if isinstance(inputs, Mapping) else {}
    plain = tuple(inputs) if isinstance(inputs, (tuple, list)) else (inputs,)
    return Workload(
        module=module,
        args=() if isinstance(inputs, Mapping) else plain,
        kwargs=named,
        target=target,
        loss=_loss(loss, target),
    )


def _no_module(value: Any) -> str:
    if isinstance(value, type) or not callable(value):
        return f"it must be a torch.nn.Module, not {_kind(value)}"
    return (
        f"it must be a torch.nn.Module, not {_kind(value)}; wrap the function in one: "
        "class Model(torch.nn.Module): forward = staticmethod(your_function)"
    )


def _kind(value: Any) -> str:
    return f"the class {value.__name__}" if isinstance(value, type) else f"a {type(value).__name__}"


def _loss(loss: Any, target: Any) -> Callable[[Any, Any], Any]:
    if loss is None and target is None:
        return loss_of_output
    if loss is None:
        raise TypeError("target: no loss is given that uses it; give a loss of (output, target), too")
    if not callable(loss):
        order = "; the order is (module, inputs, loss, target)" if callable(target) else ""
        raise TypeError(f"loss: it must be a function of (output, target), not {_kind(loss)}{order}")
    return loss_of_two(loss, target)
