"""Contexts that must be active while a step compiles, in its forward and in its backward."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any

import torch

from harness.program import Compiled

SETTLING_CALLS = 8
"""Calls after which all compilation is done; TorchScript's executor needs three."""
Run = Callable[..., tuple[Any, Any]]
"""A ``Forward`` or a ``Batch``."""


def around(run: Run, context: Callable[[], AbstractContextManager[Any]], *, calls: int | None = None) -> Run:
    """``run`` and the backward of its loss inside ``context()``, for the first ``calls`` calls, or all.

    The step calls ``loss.backward()`` outside of the forward. Therefore this loss gets its own ``backward``.
    """
    plain_backward: Callable[..., None] = torch.Tensor.backward
    left = calls

    def within(*given: Any) -> tuple[Any, Any]:
        nonlocal left
        if left is not None:
            if left == 0:
                return run(*given)
            left -= 1
        with context():
            loss, output = run(*given)
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

    return within


def inside(
    compiled: Compiled, context: Callable[[], AbstractContextManager[Any]], *, calls: int | None = None
) -> Compiled:
    """``around`` for what was compiled, which may be the whole step."""
    compile_batch = compiled.compile_batch
    if compile_batch is None:
        return replace(compiled, forward=around(compiled.forward, context, calls=calls))
    return replace(compiled, compile_batch=lambda batch: around(compile_batch(batch), context, calls=calls))
