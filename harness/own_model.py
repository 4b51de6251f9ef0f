"""``--model package.module:function`` or ``--model file.py:function``: a model of the user's own.

The function returns a ``Workload``, or a tuple: the module, its inputs and, if the model is
to be trained on one, a loss. The inputs are a tensor, a tuple of positional ones or a mapping
of named ones; the loss is ``loss(output, target)``, where target is None. Without a loss, training takes the
``loss`` of the output if it has one, and else the mean of the output.

A function with a parameter called ``batch_size`` is given ``--batch-size``.
"""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.schema import Case, Setting

if TYPE_CHECKING:
    from harness.workload import Workload

_SPEC = re.compile(r"^(?P<module>.+):(?P<function>[^\W\d]\w*)$")


def is_own_model(name: str) -> bool:
    """Whether this is written as ``module:function`` or ``file.py:function``."""
    return _SPEC.match(name) is not None


class OwnModel:
    """A suite of the one model that a function makes."""

    def __init__(self, spec: str) -> None:
        found = _SPEC.match(spec)
        if found is None:
            raise LookupError(f"{spec!r} is not written as package.module:function")
        self._spec = spec
        self._module = found["module"]
        self._function = found["function"]

    def cases(self, setting: Setting) -> tuple[Case, ...]:
        """One case. Its batch size is known to the function alone, until one is asked for."""
        case = Case(
            suite=self._spec,
            name=self._function,
            mode=setting.mode,
            batch_size=None,
            published_batch_size=None,
            scale="full",  # whatever the function makes is the whole of it
        )
        return (case,)

    def build(self, case: Case) -> Workload:
        """Calls the function. ``LookupError`` or ``TypeError`` say in a sentence what is wrong with it."""
        if case.config:
            raise LookupError(f"--model-config: {self._spec} has no configuration that the harness knows")
        make = self._find()
        if case.batch_size is None:
            made = make()
        elif "batch_size" in inspect.signature(make).parameters:
            made = make(batch_size=case.batch_size)
        else:
            raise TypeError(f"--batch-size: {self._spec} has no parameter called batch_size")
        return _as_workload(self._spec, made)

    def _find(self) -> Callable[..., Any]:
        from harness.suite_files import load_file

        if self._module.endswith(".py"):
            module: Any = load_file(Path(self._module))
        else:
            try:
                module = importlib.import_module(self._module)
            except ModuleNotFoundError as error:
                if error.name is None or not f"{self._module}.".startswith(f"{error.name}."):
                    raise  # something that the user's module needs
                raise LookupError(
                    f"--model: there is no module {self._module!r} here; give package.module:function, "
                    "importable from the current folder, or file.py:function"
                ) from None
        function = getattr(module, self._function, None)
        if not callable(function):
            raise LookupError(f"--model: {self._module!r} has no function {self._function!r}")  # noqa: TRY004
        return function  # type: ignore[no-any-return]


def _as_workload(spec: str, made: Any) -> Workload:
    import torch

    from harness.workload import Workload

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
    from harness.losses import mean_of_output

    own = output.get("loss") if isinstance(output, Mapping) else getattr(output, "loss", None)
    return own if own is not None else mean_of_output(output, target)
