"""The optimizer of ``--optimizer``: part of a timed training step, in eager for eager and candidates."""

from __future__ import annotations

import inspect
import types
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from types import MappingProxyType
from typing import Any

import torch

from harness.failures import line_of
from harness.program import own_code
from harness.protocol import Protocol
from harness.tensors import listed, named_tensors

LEARNING_RATE = 1e-4  # small: a sample of a thousand steps begins and ends with much the same weights
PLAIN = (int, float, tuple)  # types of rates and counters
CLASSES: Mapping[str, Callable[..., torch.optim.Optimizer]] = MappingProxyType(
    {
        "sgd": partial(torch.optim.SGD, momentum=0.9),
        "adam": torch.optim.Adam,
        "adamw": torch.optim.AdamW,
        "adamw-fused": partial(torch.optim.AdamW, fused=True),
    }
)


class Update:
    """One step of the protocol's optimizer, or of the user's ``optimizer``, over the trainable parameters.

    Its state exists from the beginning, so that it can be put back in place: it is that after one step with
    gradients of zero, for an optimizer says nowhere what its state begins with. Where it takes none, such as
    SparseAdam, ``gradients`` computes real ones for this step. ``scale``: of the loss, by
    which gradients are divided first. ``TypeError`` with a sentence for what a user's function returned.
    """

    def __init__(
        self,
        protocol: Protocol,
        module: torch.nn.Module,
        scale: float,
        optimizer: Callable[..., Any] | None = None,
        gradients: Callable[[], object] | None = None,
    ) -> None:
        self.weights = {n: p for n, p in module.named_parameters() if p.requires_grad}
        make = optimizer or partial(CLASSES[protocol.optimizer], lr=LEARNING_RATE)
        whose = "optimizer: its function" if optimizer else f"optimizer {protocol.optimizer}: torch"
        self._make_optimizer = partial(_result_of, whose, make, list(self.weights.values()))
        self._optimizer = self._checked(self._make_optimizer())
        self._scale = scale
        self._before: dict[str, torch.Tensor] = {}  # weights before a step whose results are compared
        try:
            self._make_state(self._zero_gradients)
            neutral = all(bool(tensor.isfinite().all()) for _, tensor in self.state())
        except Exception:  # of the optimizer, which may refuse zeros
            if gradients is None:
                raise
            neutral = False
        if not neutral and gradients is not None:
            self._put_back_weights()
            self._optimizer = self._checked(self._make_optimizer())
            self._make_state(gradients)
        self._plain = [{k: v for k, v in part.items() if isinstance(v, PLAIN)} for part in self._parts()]

    def __call__(self) -> None:
        if self._scale != 1.0:
            for weight in self.weights.values():
                if weight.grad is not None:
                    weight.grad.div_(self._scale)
        self._optimizer.step()

    def set_rate(self, rate: float) -> None:
        for group in self._optimizer.param_groups:
            group["lr"] = rate

    def restart(self) -> None:
        """Puts back what is no tensor: rates and counters."""
        for part, plain in zip(self._parts(), self._plain, strict=False):
            part.update(plain)

    def _checked(self, optimizer: object) -> torch.optim.Optimizer:
        if not isinstance(optimizer, torch.optim.Optimizer):
            kind_of = type(optimizer).__name__
            raise TypeError(
                f"optimizer: its function returned a {kind_of}, which is no torch.optim.Optimizer"
            )
        held = {id(weight) for group in optimizer.param_groups for weight in group["params"]}
        if left := [name for name, weight in self.weights.items() if id(weight) not in held]:
            raise TypeError(
                f"optimizer: of the parameters that its function is given, it leaves out {listed(left)}; "
                "set requires_grad=False on what is not to be trained"
            )
        kind = type(optimizer)
        closure = inspect.signature(kind.step).parameters.get("closure")
        if closure is not None and closure.default is closure.empty:
            raise TypeError(
                f"optimizer: {kind.__name__} calls the model again by a closure, which torchduet lacks: "
                "take one whose step() needs none"
            )
        optimizer.__class__ = type(kind.__name__, (kind,), {"step": _own_step(kind.step)})
        return optimizer

    def _make_state(self, gradients: Callable[[], object]) -> None:
        self.begin()
        gradients()
        self._optimizer.step()
        self._put_back_weights()

    def _zero_gradients(self) -> None:
        for weight in self.weights.values():
            weight.grad = torch.zeros_like(weight)

    def _put_back_weights(self) -> None:
        with torch.no_grad():
            for name, weight in self.weights.items():
                weight.grad = None
                weight.copy_(self._before.get(name, weight))
        self._before = {}

    def _parts(self) -> list[dict[str, Any]]:
        parts = (*self._optimizer.param_groups, *self._optimizer.state.values())
        return [part for part in parts if isinstance(part, dict)]

    def state(self) -> Iterator[tuple[str, torch.Tensor]]:
        """The tensors of its state and settings, by name."""
        for name, weight in self.weights.items():
            yield from named_tensors(self._optimizer.state.get(weight, {}), f"optimizer.{name}")
        for number, group in enumerate(self._optimizer.param_groups):
            settings = {key: value for key, value in group.items() if key != "params"}
            yield from named_tensors(settings, f"optimizer.{number}")

    def begin(self) -> None:
        """Before a step whose results are compared: keeps the weights."""
        self._before = {name: weight.detach().clone() for name, weight in self.weights.items()}

    def results(self) -> Iterator[tuple[str, torch.Tensor]]:
        """What the step since ``begin`` did: the change of each weight, and the state (not its counters)."""
        for name, before in self._before.items():
            yield f"update.{name}", self.weights[name].detach() - before
        yield from ((name, tensor) for name, tensor in self.state() if tensor.dim())
        self._before = {}


def _own_step(step: Any) -> Any:
    """With code objects of its own, also of what it wraps: see ``Program.forward``."""
    if not isinstance(step, types.FunctionType):
        return step
    inner, cells = getattr(step, "__wrapped__", step), step.__closure__ or ()
    own = (types.CellType(_own_step(inner)) if c.cell_contents is inner else c for c in cells)
    return own_code(step, tuple(own))


def _result_of(whose: str, function: Callable[..., Any], given: Any) -> Any:
    try:
        return function(given)
    except Exception as error:  # of the user's
        raise TypeError(f"{whose} raised {type(error).__name__}: {line_of(error)}") from error
