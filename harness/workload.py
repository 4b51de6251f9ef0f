"""What a suite's ``build`` hands to the harness."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch


class Drive(Protocol):
    """A step that calls the forward many times: the loop round it stays in Python, uncompiled.

    ``call(*args, **kwargs)`` runs the (compiled) forward of ``module``; ``args`` are the
    workload's. ``lap()`` is to be called once, when the first part of the step (prefill) is
    done. ``forced`` are the tokens that an earlier step chose, (batch, new tokens): given
    them, the step chooses too but goes on with these, so that two variants can be compared
    at every token. Returns "tokens", the choices, and the logits they were made from.
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

    The harness moves and casts them; a suite never does. ``loss(output, target)``
    returns a scalar; training needs one, inference ignores it. The module is
    called as ``module(*args, **kwargs)``, unless ``drive`` says how a step calls it.
    """

    module: torch.nn.Module
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    target: Any = None
    loss: Callable[[Any, Any], torch.Tensor] | None = None
    drive: Drive | None = None
