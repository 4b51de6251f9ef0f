"""What a compiler is given, and what it gives back."""

from __future__ import annotations

import types
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from harness.schema import CompilerOptions
from harness.workload import Drive

Forward = Callable[[tuple[Any, ...], Mapping[str, Any], Any], tuple[Any, Any]]
"""``forward(args, kwargs, target) -> (loss, output)``; the loss is None in inference."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """One variant's own copy of a module with its inputs and loss, not yet compiled."""

    module: torch.nn.Module
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    target: Any
    loss: Callable[[Any, Any], torch.Tensor] | None
    training: bool
    drive: Drive | None = None
    options: CompilerOptions = field(default_factory=CompilerOptions)

    def forward(self) -> Forward:
        """The eager forward and loss, as a function with a code object of its own.

        Dynamo keeps compiled code by code object: variants that shared one
        would walk each other's cache entries, and torch <= 2.1 would silently
        run another backend's code. ``module`` replaced by a compiled one
        gives a function that compiles the forward alone.
        """
        return forward_of(self.module, self.loss if self.training else None)


def forward_of(module: Callable[..., Any], loss: Callable[[Any, Any], torch.Tensor] | None) -> Forward:
    """``(args, kwargs, target) -> (loss, output)`` around any callable module. See ``Program``."""

    def inference(args: tuple[Any, ...], kwargs: Mapping[str, Any], target: Any) -> tuple[Any, Any]:
        return None, module(*args, **kwargs)

    def with_loss(args: tuple[Any, ...], kwargs: Mapping[str, Any], target: Any) -> tuple[Any, Any]:
        output = module(*args, **kwargs)
        assert loss is not None
        return loss(output, target), output

    template = inference if loss is None else with_loss
    return types.FunctionType(
        template.__code__.replace(),  # a new code object each time
        template.__globals__,
        template.__name__,
        template.__defaults__,
        template.__closure__,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Compiled:
    """A compiled forward with the means to prove that its compiler did the work.

    ``compiler_calls()`` counts the compiler's calls since this candidate's
    compilation began; it is read right after the candidate's own first calls.
    A control (``eager``) has no compiler to prove. ``region`` says what was
    compiled: "forward+loss", "forward", "submodules" or "none". ``approximate``
    ones (quantised weights) differ from eager by design: their error is
    measured and shown, but not judged.
    """

    forward: Forward
    region: str
    compiler_calls: Callable[[], int]
    control: bool = False
    approximate: bool = False
    notes: tuple[str, ...] = ()
    late_notes: Callable[[], tuple[str, ...]] = tuple  # those that its first calls bring
