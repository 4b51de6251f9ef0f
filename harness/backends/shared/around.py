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
Run = Callable[..., tuple[Any, Any]]
"""A ``Forward`` or a ``Batch``."""


def around(
    forward: Forward, context: Callable[[], AbstractContextManager[Any]], *, calls: int | None = None
) -> Forward:
    """``forward`` and the backward of its loss inside ``context()``, for the first ``calls`` calls, or all.

    The step calls ``loss.backward()`` outside of the forward. Therefore this loss gets its own ``backward``.
    """
    plain_backward: Callable[..., None] = torch.Tensor.backward

    def within(args: tuple[Any, ...], kwargs: Mapping[str, Any], target: Any) -> tuple[Any, Any]:
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

    return _first(within, forward, calls)


def _first(within: Run, after: Run, calls: int | None) -> Run:
    """``within`` for the first ``calls`` calls, or all; then ``after``."""
    if calls is None:
        return within
    left = calls

    def run(*given: Any) -> tuple[Any, Any]:
        nonlocal left
        if left == 0:
            return after(*given)
        left -= 1
        return within(*given)

    return run


def inside(
    compiled: Compiled, context: Callable[[], AbstractContextManager[Any]], *, calls: int | None = None
) -> Compiled:
    """``around`` for what was compiled, which may be the whole step: its backward is in the call."""
    compile_batch = compiled.compile_batch
    if compile_batch is None:
        return replace(compiled, forward=around(compiled.forward, context, calls=calls))

    def compile_inside(batch: Batch) -> Batch:
        run = compile_batch(batch)

        def within(*given: Any) -> tuple[Any, Any]:
            with context():
                return run(*given)

        return _first(within, run, calls)

    return replace(compiled, compile_batch=compile_inside)
