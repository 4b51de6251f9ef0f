"""Powers of two for the weights, at which every part of a model changes its results.

With its first weights, a model may hide a wrong part: a residual branch of small random weights adds less to
the output than bfloat16 rounds away, and a network without trained normalization returns little more than
its last bias. On other data (``harness.parity.data.other_data``) the weights are therefore scaled, module by
module in the order of execution, until the part of each module's output that depends on its input has a root
mean square near 1 (as in layer-sequential unit-variance initialization, Mishkin & Matas 2016). All factors
are powers of two, which no floating type rounds, so eager, fp64 and candidate have the same weights.

An embedding that is also the last product (tied weights) would make logits of a size at which the softmax is
one-hot: no error of a logit would reach the loss, and denormal numbers would make the steps slow. Its factor
lies between those of its two uses, and no other embedding has a larger factor.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType
from typing import Any

import torch
from torch import nn

from harness.parity.measure import scale_of

Factors = Mapping[str, float]
"""Parameter -> power of two."""

NONE: Factors = MappingProxyType({})
LARGEST = 24  # exponent
CHANNELS_SECOND = ("Conv", "BatchNorm", "GroupNorm", "InstanceNorm")  # classes whose bias is for dimension 1
OF_TORCH = (nn.modules.conv._ConvNd, nn.modules.batchnorm._NormBase, nn.GroupNorm)  # noqa: SLF001 - bases


def balance_of(module: nn.Module, run: Callable[[], object]) -> Factors:
    """The factors for ``module``; ``run`` is one forward of it. Leaves the weights as they are."""
    balance = _Balance(module)
    try:
        with torch.no_grad():
            run()
    finally:
        balance.end()
    return balance.factors


def scale_weights(module: nn.Module, factors: Factors) -> list[Callable[[], object]]:
    """Multiplies the weights in place. Returns how to undo each."""
    undo: list[Callable[[], object]] = []
    for name, parameter in module.named_parameters():
        if name in factors:
            parameter.data.mul_(factors[name])
            undo.append(partial(parameter.data.mul_, 1 / factors[name]))
    return undo


class _Balance:
    """Hooks that scale the weights of each module after its first call, and pass a scaled output on."""

    def __init__(self, module: nn.Module) -> None:
        self.factors: dict[str, float] = {}
        self._names = {id(parameter): name for name, parameter in module.named_parameters()}
        self._undo: list[Callable[[], object]] = []
        self._hooks = []
        self._most_of_embeddings = _most_of_embeddings(module)
        for part in module.modules():
            own = list(part.parameters(recurse=False))
            inside = isinstance(part, nn.MultiheadAttention)  # which calls no module for its last product
            is_leaf = not list(part.children())
            for parameter in part.parameters() if inside else own:
                if inside or not is_leaf or (parameter.dim() > 1 and _has_several_weights(part)):
                    self._raise(parameter)
            if own and is_leaf:
                self._hooks.append(part.register_forward_hook(self._after))

    def end(self) -> None:
        for hook in self._hooks:
            hook.remove()
        with torch.no_grad():
            for undo in reversed(self._undo):
                undo()

    def _raise(self, parameter: torch.Tensor) -> None:
        """For a weight that its module uses in its own way: only if it is small, and by its own size."""
        matrix = parameter.dim() > 1 and parameter.shape[0] > 1
        if parameter.is_floating_point() and parameter.numel():
            size = scale_of(parameter) * (math.sqrt(parameter.shape[-1]) if matrix else 1.0)
            self._scale(parameter, max(1.0, _inverse(size)))

    def _after(self, part: nn.Module, _: Any, output: Any) -> Any:
        weights = [p for p in part.parameters(recurse=False) if p.is_floating_point() and p.numel()]
        bias = getattr(part, "bias", None)
        if not isinstance(output, torch.Tensor) or not output.is_floating_point() or not output.numel():
            return None
        added: torch.Tensor | float = 0.0
        if isinstance(bias, nn.Parameter) and bias.dim() == 1 and len(weights) > 1:
            place = _place_of_channels(part, output, bias)
            if output.dim() <= place or output.shape[place] != bias.numel():
                return None
            added = bias.to(output.dtype).view(-1, *(1,) * (output.dim() - 1 - place))
            weights = [weight for weight in weights if weight is not bias]
        rest = output - added
        wanted = _inverse(scale_of(rest))
        if isinstance(part, nn.Embedding):
            wanted = min(wanted, self._most_of_embeddings)
        factor = self._scale(weights[0], wanted) if len(weights) == 1 else 1.0
        if isinstance(added, torch.Tensor) and isinstance(bias, nn.Parameter):
            added = added * self._scale(bias, min(1.0, _inverse(scale_of(bias))))
        return rest * factor + added

    def _scale(self, parameter: torch.Tensor, factor: float) -> float:
        """Scales the parameter if no bit is lost. Returns the factor that it has now."""
        name = self._names.get(id(parameter), "")
        if name in self.factors or not name or factor == 1.0:
            return 1.0  # a weight that two modules share has the factor of the first
        values = parameter.data
        scaled = values * factor
        if not bool(torch.isfinite(scaled).all()) or not torch.equal(scaled / factor, values):
            return 1.0
        values.mul_(factor)
        self._undo.append(partial(values.mul_, 1 / factor))
        self.factors[name] = factor
        return factor


def _has_several_weights(part: nn.Module) -> bool:
    """Whether it is not known how its output depends on each, as of an attention that calls no module."""
    bias = getattr(part, "bias", None)
    own = [parameter for parameter in part.parameters(recurse=False) if parameter is not bias]
    return sum(parameter.dim() > 1 for parameter in own) > 1


def _place_of_channels(part: nn.Module, output: torch.Tensor, bias: torch.Tensor) -> int:
    """The dimension of the output that the bias is for. (transformers has a Conv1D that is a product.)"""
    last = output.dim() - 1
    if isinstance(part, OF_TORCH):
        return 1
    named = any(word in type(part).__name__ for word in CHANNELS_SECOND)
    return 1 if named and output.shape[last] != bias.numel() else last


def _most_of_embeddings(module: nn.Module) -> float:
    """The largest factor of an embedding: infinite, if no embedding's weight is also that of a product."""
    leaves = [part for part in module.modules() if not list(part.children())]
    tables = {id(part.weight): part.weight for part in leaves if isinstance(part, nn.Embedding)}
    products = {
        id(weight) for part in leaves if not isinstance(part, nn.Embedding) for weight in part.parameters()
    }
    most = math.inf
    for weight in (table for key, table in tables.items() if key in products):
        size = scale_of(weight)
        looked_up, multiplied = _inverse(size), _inverse(size * math.sqrt(weight.shape[-1]))
        between = math.floor((math.log2(looked_up) + math.log2(multiplied)) / 2)
        most = min(most, 2.0**between)
    return most


def _inverse(size: float) -> float:
    """The power of two that brings ``size`` next to 1; 1 for zero and what is not finite."""
    if not 0.0 < size < math.inf:
        return 1.0
    return 2.0 ** max(-LARGEST, min(LARGEST, -round(math.log2(size))))
