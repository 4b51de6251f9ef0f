"""The input of a compiler (``Program``) and its result (``Compiled``)."""

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

Batch = Callable[[Any, Any, Any, bool], tuple[Any, Any]]
"""``batch(args, kwargs, target, last) -> (loss, output)``: forward, loss, backward.

The ``last`` batch of a training step ends with the optimizer's step.
"""


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
    said: tuple[str, ...] = ()  # sentences: how this copy differs from the user's module
    rates: tuple[float, ...] = ()  # dropout probabilities before they were neutralized
    loss_scale: float = 1.0  # the gradient of the loss: a power of two
    optimizer: Callable[..., Any] | None = None  # the user's own: see ``Workload``

    def given(self) -> tuple[Any, Any, Any]:
        """Inputs and target."""
        return (self.args, self.kwargs, self.target)

    def forward(self) -> Forward:
        """The eager forward and loss, as a function with a code object of its own.

        Dynamo caches compiled code by code object. Variants that shared one would check each other's cache
        entries, and torch <= 2.1 would silently run the code of another backend.
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

    forward: Forward = own_code(inference if loss is None else with_loss)
    return forward


def own_code(template: Any, closure: tuple[types.CellType, ...] | None = None) -> Any:
    """The same function with a new code object, and with another ``closure``."""
    copied = types.FunctionType(
        template.__code__.replace(),
        template.__globals__,
        template.__name__,
        template.__defaults__,
        closure or template.__closure__,
    )
    copied.__kwdefaults__ = template.__kwdefaults__
    return copied


@dataclass(frozen=True, slots=True, kw_only=True)
class Compiled:
    """A compiled forward, with a proof that its compiler was called.

    ``compiler_calls()`` counts the compiler's calls since this candidate's compilation began; it is read
    right after the candidate's first calls. A ``control`` (``eager``) has no compiler, so nothing is
    proved. ``region`` says what was compiled: "step", "forward+loss", "forward", "submodules" or "none".
    ``compile_batch`` compiles the whole training step, in which ``forward`` is then eager. The results
    of an ``approximate`` compiler (quantized weights) differ from eager's by design: it passes by its
    signal-to-noise ratio (``--approximate-sqnr``). ``constant_weights``: the weights of the compilation are
    used for ever, by design; a later change in place has no effect. ``replays``: it uses CUDA graphs, which
    keep memory.
    """

    forward: Forward
    region: str
    compiler_calls: Callable[[], int]
    control: bool = False
    approximate: bool = False
    replays: bool = False
    constant_weights: bool = False
    notes: tuple[str, ...] = ()
    late_notes: Callable[[], tuple[str, ...]] = tuple  # notes that exist only after the first calls
    autotuned: Callable[[], str] = str  # kernels that autotuning chose in the first calls; "": none
    compile_batch: Callable[[Batch], Batch] | None = None
    why_nothing: Callable[[], str] = str  # without calls: a sentence why; "": nothing reached the compiler


Compile = Callable[[Program], Compiled]
Compilers = Mapping[str, Compile]
"""Candidate -> compiler."""
