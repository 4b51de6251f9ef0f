"""``--model package.module:function`` or ``--model file.py:function``: a model of the user's own.

The function returns a ``Workload``, or a tuple: the module, its inputs and, if the model is
to be trained on one, a loss. The inputs are a tensor, a tuple of positional ones or a mapping
of named ones; the loss is ``loss(output, target)``, where target is None. Without a loss, training takes the
``loss`` of the output if it has one, and else the mean of the output.

A function with a parameter called ``batch_size`` is given ``--batch-size``.
"""

from __future__ import annotations

import importlib
import re
from typing import TYPE_CHECKING

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
        # by name: planning uses this module, and must not import torch with it
        making = importlib.import_module("harness.own_model_build")
        workload: Workload = making.build(self._spec, self._module, self._function, case)
        return workload
