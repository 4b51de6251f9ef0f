"""Contexts that must be active while a step compiles, in its forward and in its backward."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any

import torch

from harness.program import Batch, Compiled, Forward

SETTLING_CALLS = 8
"""Calls after which all compilation is done; TorchScript's executor needs three."""


def around(
    forward: Forward, context: Callable[[], AbstractContextManager[Any]], *, calls: int | None = None
) -> Forward:
    """``forward`` and the backward of its loss inside ``context()``, for the first ``calls`` calls, or all.

    The step calls ``loss.backward()`` outside of the forward. Therefore this loss gets its own ``backward``.
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
            # a strong reference makes a cycle, and garbage collection is off during the rounds
            weak = weakref.ref(loss)

            def backward(*given: Any, **named: Any) -> None:
                mine = weak()
                assert mine is not None
                with context():
                    plain_backward(mine, *given, **named)

            loss.backward = backward  # type: ignore[method-assign]
        return loss, output

    return wrapped


def inside(
    compiled: Compiled, context: Callable[[], AbstractContextManager[Any]], *, calls: int | None = None
) -> Compiled:
    """The same of what was compiled, which may be the whole step."""
    compile_batch = compiled.compile_batch
    if compile_batch is None:
        return replace(compiled, forward=around(compiled.forward, context, calls=calls))

    def compile_inside(batch: Batch) -> Batch:
        ran, left = compile_batch(batch), -1 if calls is None else calls

        def wrapped(*given: Any) -> tuple[Any, Any]:
            nonlocal left
            if left == 0:
                return ran(*given)
            left -= left > 0
            with context():
                return ran(*given)

        return wrapped

    return replace(compiled, compile_batch=compile_inside)
