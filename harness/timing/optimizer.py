"""The optimizer of ``--optimizer``: part of a timed training step, in eager for eager and candidates."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from types import MappingProxyType

import torch

LEARNING_RATE = 1e-4  # small: a sample of a thousand steps begins and ends with much the same weights
CLASSES: Mapping[str, Callable[..., torch.optim.Optimizer]] = MappingProxyType(
    {
        "sgd": partial(torch.optim.SGD, momentum=0.9),
        "adam": torch.optim.Adam,
        "adamw": torch.optim.AdamW,
        "adamw-fused": partial(torch.optim.AdamW, fused=True),
    }
)


class Update:
    """One step of the optimizer called ``name`` over the trainable parameters of ``module``.

    Its state exists from the beginning, so that it can be put back in place. ``scale``: of the loss, by which
    gradients are divided first.
    """

    def __init__(self, name: str, module: torch.nn.Module, scale: float) -> None:
        self._names = {id(p): n for n, p in module.named_parameters()}
        self._parameters = [p for p in module.parameters() if p.requires_grad]
        self._optimizer = CLASSES[name](self._parameters, lr=LEARNING_RATE)
        self._scale = scale
        self._make_state()
        self._before: dict[str, torch.Tensor] = {}

    def __call__(self) -> None:
        if self._scale != 1.0:
            for parameter in self._parameters:
                if parameter.grad is not None:
                    parameter.grad.div_(self._scale)
        self._optimizer.step()

    def _make_state(self) -> None:
        """Runs one step without gradients' values, and takes its effect on weights and state back.

        Zeros are the state that an optimizer begins with, that of a momentum included: the first step sets it
        to the gradient, which is what momentum times zero plus the gradient is.
        """
        weights = [parameter.detach().clone() for parameter in self._parameters]
        for parameter in self._parameters:
            parameter.grad = torch.zeros_like(parameter)
        self._optimizer.step()
        with torch.no_grad():
            for parameter, weight in zip(self._parameters, weights, strict=True):
                parameter.grad = None
                parameter.copy_(weight)
            for _, tensor in self.state():
                tensor.zero_()

    def state(self) -> Iterator[tuple[str, torch.Tensor]]:
        """The tensors of its state, by name."""
        for parameter, values in self._optimizer.state.items():
            for key, value in values.items():
                if isinstance(value, torch.Tensor):
                    yield f"optimizer.{self._names[id(parameter)]}.{key}", value

    def weights(self) -> Iterator[tuple[str, torch.Tensor]]:
        """The weights that it changes, by name."""
        yield from ((self._names[id(parameter)], parameter) for parameter in self._parameters)

    def begin(self) -> None:
        """Before a step whose results are compared: keeps the weights."""
        self._before = {name: weight.detach().clone() for name, weight in self.weights()}

    def results(self) -> Iterator[tuple[str, torch.Tensor]]:
        """What the step since ``begin`` did: the change of each weight, and the state (not its counters)."""
        for name, weight in self.weights():
            if name in self._before:
                yield f"update.{name}", weight.detach() - self._before[name]
        yield from ((name, tensor) for name, tensor in self.state() if tensor.dim())
        self._before = {}


def update_of(name: str, module: torch.nn.Module, scale: float) -> Update | None:
    """The optimizer of a training step; None for ``none``."""
    return None if name == "none" else Update(name, module, scale)
