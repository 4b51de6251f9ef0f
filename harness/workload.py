"""``Workload``: what a suite's ``build`` returns."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from harness.schema import Case

if TYPE_CHECKING:
    import torch


class Drive(Protocol):
    """A step that calls the forward many times. The loop around the calls is Python and is not compiled.

    ``call(*args, **kwargs)`` runs the (compiled) forward of ``module``; ``args`` are the workload's. The step
    calls ``lap()`` once, when its first part (prefill) is done. ``forced``: tokens that an earlier step
    chose, shape (batch, new tokens). With them, the step still chooses tokens but continues with the forced
    tokens, so that two variants can be compared at every token. Returns "tokens" (the choices) and the
    logits.
    """

    def __call__(
        self,
        call: Callable[..., Any],
        module: torch.nn.Module,
        args: tuple[Any, ...],
        lap: Callable[[], None],
        forced: torch.Tensor | None,
    ) -> Mapping[str, torch.Tensor]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """A module, its inputs and its loss, in float32 on the CPU.

    The harness moves and casts them; a suite must not. ``loss(output, target)`` returns a scalar. Training
    needs a loss; inference ignores it. The module is called as ``module(*args, **kwargs)``, unless there is
    a ``drive``. Where the job's protocol names a function, ``optimizer(parameters)`` is that of the caller.
    ``batches(step)`` has arguments, named arguments and target of a step of ``--trajectory``, from 0, in the
    shapes of the workload's own; None: every step has these.
    """

    module: torch.nn.Module
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    target: Any = None
    loss: Callable[[Any, Any], torch.Tensor] | None = None
    drive: Drive | None = None
    optimizer: Callable[..., Any] | None = None
    batches: Callable[[int], tuple[Any, Any, Any]] | None = None


Build = Callable[[Case], Workload]
"""``build`` of a suite."""
