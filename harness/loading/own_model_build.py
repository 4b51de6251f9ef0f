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
from harness.loading.losses import mean_of_output
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
        made = make()
    elif "batch_size" in inspect.signature(make).parameters:
        made = make(batch_size=case.batch_size)
    else:
        raise TypeError(f"--batch-size: {spec} has no parameter called batch_size")
    return _as_workload(spec, made)


def _find(name: str, function: str) -> Callable[..., Any]:
    try:
        module = load_module(name)
    except LookupError as error:
        raise LookupError(f"--model: {error}") from None
    found = getattr(module, function, None)
    if not callable(found):
        raise LookupError(f"--model: {name!r} has no function {function!r}")  # noqa: TRY004
    return found  # type: ignore[no-any-return]


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


def _as_workload(spec: str, made: Any) -> Workload:
    if isinstance(made, Workload):
        return made if made.loss is not None else replace(made, loss=loss_of_output)
    if not isinstance(made, tuple) or len(made) not in (2, 3, 4) or not isinstance(made[0], torch.nn.Module):
        raise TypeError(
            f"--model: {spec} returned a {type(made).__name__}; it must return (module, inputs), "
            "(module, inputs, loss) or (module, inputs, loss, target)"
        )
    module, inputs, *rest = made
    loss, target = (*rest, None, None)[:2]
    return workload_of(module, inputs, loss, target)


def workload_of(module: torch.nn.Module, inputs: Any, loss: Any = None, target: Any = None) -> Workload:
    """A workload from the user's arguments. ``TypeError`` with a sentence for a loss that is no function."""
    named = dict(inputs) if isinstance(inputs, Mapping) else {}
    plain = tuple(inputs) if isinstance(inputs, (tuple, list)) else (inputs,)
    if loss is not None and not callable(loss):
        raise TypeError(f"loss: it must be a function of (output, target), not a {type(loss).__name__}")
    return Workload(
        module=module,
        args=() if isinstance(inputs, Mapping) else plain,
        kwargs=named,
        target=target,
        loss=loss_of_output if loss is None else loss_of_two(loss, target),
    )


def loss_of_output(output: Any, target: Any) -> Any:
    """The output's own ``loss`` if it has one, else the mean of the output."""
    own = output.get("loss") if isinstance(output, Mapping) else getattr(output, "loss", None)
    return own if own is not None else mean_of_output(output, target)
