"""Contexts that must hold while a step compiles: in its forward, and in its backward as well."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Any

import torch

from harness.program import Forward

FIRST_CALLS = 8
"""Enough for whatever compiles on its first calls: TorchScript's executor takes three."""


def around(
    forward: Forward, context: Callable[[], AbstractContextManager[Any]], *, calls: int | None = None
) -> Forward:
    """``forward`` within ``context()``, and the backward of its loss, too; the first ``calls`` calls, or all.

    The step calls ``loss.backward()`` itself, outside of the forward: that
    one loss gets a ``backward`` of its own.
    """
    plain_backward: Callable[..., None] = torch.Tensor.backward
    left = calls if calls is not None else -1

    def wrapped(args: tuple[Any, ...], kwargs: Mapping[str, Any], target: Any) -> tuple[Any, Any]:
        nonlocal left
        if left == 0:
            return forward(args, kwargs, target)
        left -= left > 0
        with context():
            loss, output = forward(args, kwargs, target)
        if isinstance(loss, torch.Tensor) and loss.requires_grad:
            # a strong reference would make a cycle, and the collector is off during the rounds
            weak = weakref.ref(loss)

            def backward(*given: Any, **named: Any) -> None:
                mine = weak()
                assert mine is not None
                with context():
                    plain_backward(mine, *given, **named)

            loss.backward = backward  # type: ignore[method-assign]
        return loss, output

    return wrapped
