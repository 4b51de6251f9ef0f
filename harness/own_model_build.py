"""Calls the function of ``--model`` and makes a workload of what it returns: ``harness.own_model``."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from harness.losses import mean_of_output
from harness.schema import Case
from harness.suite_files import load_file
from harness.workload import Workload


def build(spec: str, module: str, function: str, case: Case) -> Workload:
    """The workload of ``function`` in ``module``. ``LookupError`` or ``TypeError`` with a sentence."""
    if case.config:
        raise LookupError(f"--model-config: {spec} has no configuration that the harness knows")
    make = _find(module, function)
    if case.batch_size is None:
        made = make()
    elif "batch_size" in inspect.signature(make).parameters:
        made = make(batch_size=case.batch_size)
    else:
        raise TypeError(f"--batch-size: {spec} has no parameter called batch_size")
    return _as_workload(spec, made)


def _find(name: str, function: str) -> Callable[..., Any]:
    found = getattr(_load(name), function, None)
    if not callable(found):
        raise LookupError(f"--model: {name!r} has no function {function!r}")  # noqa: TRY004
    return found  # type: ignore[no-any-return]


def _load(name: str) -> Any:
    if name.endswith(".py"):
        return load_file(Path(name))
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise  # something that the user's module needs
        raise LookupError(
            f"--model: there is no module {name!r} here; give package.module:function, "
            "importable from the current folder, or file.py:function"
        ) from None


def _as_workload(spec: str, made: Any) -> Workload:
    if isinstance(made, Workload):
        return made if made.loss is not None else replace(made, loss=loss_of_output)
    if not isinstance(made, tuple) or len(made) not in (2, 3) or not isinstance(made[0], torch.nn.Module):
        raise TypeError(
            f"--model: {spec} returned a {type(made).__name__}; it must return (module, inputs) "
            "or (module, inputs, loss)"
        )
    module, inputs, *rest = made
    loss = rest[0] if rest else loss_of_output
    if isinstance(inputs, Mapping):
        return Workload(module=module, kwargs=dict(inputs), loss=loss)
    args = tuple(inputs) if isinstance(inputs, (tuple, list)) else (inputs,)
    return Workload(module=module, args=args, loss=loss)


def loss_of_output(output: Any, target: Any) -> Any:
    """The output's own ``loss`` where it has one, else the mean of the output."""
    own = output.get("loss") if isinstance(output, Mapping) else getattr(output, "loss", None)
    return own if own is not None else mean_of_output(output, target)
