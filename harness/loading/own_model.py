"""``--model package.module:function`` or ``--model file.py:function``: a model of the user's own.

The function returns a ``Workload`` or a tuple: (module, inputs), (module, inputs, loss), (module, inputs,
loss, target) or (module, inputs, loss, target, batches). The inputs are a tensor, a tuple of positional
arguments or a mapping of named arguments. The loss is ``loss(output, target)`` (target None if the tuple has
no target) or ``loss(output)``. Without a loss, training uses the ``loss`` of the output if it has one, else
the mean of the output. ``batches``, for ``--trajectory``: a list, or a function of the number of a step, of
other inputs; with a target, of pairs of inputs and target.

If the function has a parameter ``batch_size``, it gets the value of ``--batch-size``. ``--sweep`` sets
parameters ``batch_size`` and ``sequence``. To generate, it needs ``prompt_tokens`` and ``new_tokens``.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from harness.schema import Case, Setting
from harness.settings import is_own_model

if TYPE_CHECKING:
    from harness.workload import Workload


def module_of(spec: str) -> str:
    """The module or file of ``module:function``."""
    return spec.rpartition(":")[0]


def suite_of(name: str) -> str:
    """The suite in reports: functions of one file or module are one suite."""
    return module_of(name) if is_own_model(name) else name


class OwnModel:
    """A suite of one model, which the user's function returns."""

    def __init__(self, spec: str) -> None:
        self._spec = spec

    def cases(self, setting: Setting) -> tuple[Case, ...]:
        """One case. Only the function knows its batch size, unless ``--batch-size`` is given."""
        case = Case(
            suite=self._spec,
            name=self._spec.rpartition(":")[2],
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
        workload: Workload = making.build(self._spec, case)
        return workload
