"""``--model package.module:function`` or ``--model file.py:function``: a model of the user's own.

The function returns a ``Workload`` or a tuple: (module, inputs), (module, inputs, loss) or (module, inputs,
loss, target). The inputs are a tensor, a tuple of positional arguments or a mapping of named arguments. The
loss is ``loss(output, target)`` (target None if the tuple has no target) or ``loss(output)``. Without a loss,
training uses the ``loss`` of the output if it has one, else the mean of the output.

If the function has a parameter ``batch_size``, it gets the value of ``--batch-size``. ``--sweep`` sets
parameters ``batch_size`` and ``sequence``.
"""

from __future__ import annotations

import importlib
import re
from pathlib import Path
from typing import TYPE_CHECKING

from harness.schema import Case, Setting

if TYPE_CHECKING:
    from harness.workload import Workload

_SPEC = re.compile(r"^(?P<module>.+):(?P<function>[^\W\d]\w*)$")


def is_own_model(name: str) -> bool:
    """Whether ``name`` has the form ``module:function`` or ``file.py:function``."""
    return _SPEC.match(name) is not None


def placed(spec: str) -> str:
    """``file.py`` or ``file.py:function`` with the file's absolute path; ``spec`` itself if it is neither.

    ``ValueError`` if there is no such file.
    """
    module, colon, function = spec.rpartition(":") if is_own_model(spec) else (spec, "", "")
    if not module.endswith(".py"):
        return spec
    path = Path(module).resolve()
    if not path.is_file():
        raise ValueError(f"there is no file {module!r}")
    return f"{path}{colon}{function}"


def module_of(spec: str) -> str:
    """The module or file of ``module:function``."""
    return spec.rpartition(":")[0]


def suite_of(name: str) -> str:
    """The suite in reports: functions of one file or module are one suite."""
    return module_of(name) if is_own_model(name) else name


class OwnModel:
    """A suite of one model, which the user's function returns."""

    def __init__(self, spec: str) -> None:
        parts = _SPEC.match(spec)
        if parts is None:
            raise LookupError(f"{spec!r} is not written as package.module:function")
        self._spec = spec
        self._module = parts["module"]
        self._function = parts["function"]

    def cases(self, setting: Setting) -> tuple[Case, ...]:
        """One case. Only the function knows its batch size, unless ``--batch-size`` is given."""
        case = Case(
            suite=self._spec,
            name=self._function,
            mode=setting.mode,
            batch_size=None,
            published_batch_size=None,
            scale="full",  # the function has only one form of the model
        )
        return (case,)

    def build(self, case: Case) -> Workload:
        """Calls the function. ``LookupError`` or ``TypeError`` with a sentence on what is wrong with it."""
        # imported here, because planning uses this module without torch
        making = importlib.import_module("harness.loading.own_model_build")
        workload: Workload = making.build(self._spec, self._module, self._function, case)
        return workload
