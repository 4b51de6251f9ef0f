"""The optimizer of ``--optimizer``: part of a timed training step, in eager for eager and candidates."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from types import MappingProxyType

import torch
from torch.optim.lr_scheduler import LambdaLR

from harness.protocol import Protocol

LEARNING_RATE = 1e-4  # small: a sample of a thousand steps begins and ends with much the same weights
LITTLE = 2.0**-40
"""Share by which the learning rate changes in a step: every sample does the same work, and parity holds."""
RATES = 1024  # different learning rates in turn
CLASSES: Mapping[str, Callable[..., torch.optim.Optimizer]] = MappingProxyType(
    {
        "sgd": partial(torch.optim.SGD, momentum=0.9),
        "adam": torch.optim.Adam,
        "adamw": torch.optim.AdamW,
        "adamw-fused": partial(torch.optim.AdamW, fused=True),
    }
)


class Update:
    """One step of the protocol's optimizer over the trainable parameters of ``module``.

    Its state exists from the beginning, so that it can be put back in place. ``scale``: of the loss, by which
    gradients are divided first.
    """

    def __init__(self, protocol: Protocol, module: torch.nn.Module, scale: float) -> None:
        self.weights = {n: p for n, p in module.named_parameters() if p.requires_grad}
        rate = torch.tensor(LEARNING_RATE) if protocol.scheduler == "tensor" else LEARNING_RATE
        self._optimizer = CLASSES[protocol.optimizer](self.weights.values(), lr=rate)
        self._scale, self._clip = scale, protocol.clip_grad_norm
        self._before: dict[str, torch.Tensor] = {}  # weights before a step whose results are compared
        self._make_state()
        self._scheduler = None
        if protocol.scheduler != "none":
            self._scheduler = LambdaLR(self._optimizer, lambda step: 1 + step % RATES * LITTLE)

    def __call__(self) -> None:
        if self._scale != 1.0:
            for weight in self.weights.values():
                if weight.grad is not None:
                    weight.grad.div_(self._scale)
        if self._clip is not None:
            torch.nn.utils.clip_grad_norm_(tuple(self.weights.values()), self._clip)
        self._optimizer.step()

    def schedule(self) -> None:
        """After a step, in eager. The scheduler is not put back: in a real loop, it goes on, too."""
        if self._scheduler is not None:
            self._scheduler.step()

    def _make_state(self) -> None:
        """Runs one step with gradients of zero, which creates the state, then undoes it.

        An optimizer begins with a state of zeros. SGD sets its momentum to the first gradient instead, which
        is the same: momentum times zero, plus the gradient.
        """
        self.begin()
        for weight in self.weights.values():
            weight.grad = torch.zeros_like(weight)
        self._optimizer.step()
        with torch.no_grad():
            for name, weight in self.weights.items():
                weight.grad = None
                weight.copy_(self._before[name])
            for _, tensor in self.state():
                tensor.zero_()
        self._before = {}

    def state(self) -> Iterator[tuple[str, torch.Tensor]]:
        """The tensors of its state, by name."""
        for name, weight in self.weights.items():
            for key, value in self._optimizer.state.get(weight, {}).items():
                if isinstance(value, torch.Tensor):
                    yield f"optimizer.{name}.{key}", value

    def begin(self) -> None:
        """Before a step whose results are compared: keeps the weights."""
        self._before = {name: weight.detach().clone() for name, weight in self.weights.items()}

    def results(self) -> Iterator[tuple[str, torch.Tensor]]:
        """What the step since ``begin`` did: the change of each weight, and the state (not its counters)."""
        for name, before in self._before.items():
            yield f"update.{name}", self.weights[name].detach() - before
        yield from ((name, tensor) for name, tensor in self.state() if tensor.dim())
        self._before = {}


def update_of(protocol: Protocol, module: torch.nn.Module, scale: float) -> Update | None:
    """The optimizer of a training step; None for ``none``."""
    return None if protocol.optimizer == "none" else Update(protocol, module, scale)
