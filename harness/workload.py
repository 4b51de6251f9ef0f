"""What a suite's ``build`` hands to the harness."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """A module, its inputs and its loss, in float32 on the CPU.

    The harness moves and casts them; a suite never does. ``loss(output, target)``
    returns a scalar; training needs one, inference ignores it. The module is
    called as ``module(*args, **kwargs)``.
    """

    module: torch.nn.Module
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    target: Any = None
    loss: Callable[[Any, Any], torch.Tensor] | None = None
