"""Other weights and inputs of the same shapes, put in place into a variant that is already compiled.

Compiled code must read its weights and inputs at every call. Code that kept their first values (a graph
folded to a constant, weights that became constants, a CUDA graph whose inputs are not refreshed) passes
every check on the data that it was compiled with. A *neighbor* of some data has other last digits: it has
other values next to the kinks of a model, and is otherwise alike. All changes are exact in every floating
type, so that eager, fp64 and candidate have the same values, and a variant's weights can be restored bit by
bit.

With its first weights, a model may hide a wrong part: a residual branch of small random weights adds less to
the output than bfloat16 rounds away, and a network without trained normalization returns little more than
its last bias. On other data the weights are therefore scaled, module by module in the order of execution,
until the part of each module's output that depends on its input has a root mean square near 1 (as in
layer-sequential unit-variance initialization, Mishkin & Matas 2016). All factors are powers of two, which no
floating type rounds, so eager, fp64 and candidate have the same weights.

A weight that several modules hold is scaled by its own size, as for a product: with the factor of an
embedding, the last product would make logits at which the softmax is one-hot: no error would reach the loss.
"""

from __future__ import annotations

import math
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import nn

from harness.parity.measure import scale_of
from harness.tensors import has_memory, named_tensors
from harness.timing.step import Variant

WEIGHTS, INPUTS = "weights", "inputs"
PLAIN = (torch.nn.Parameter, torch.Tensor)
STEPS = (-0.25, -0.125, 0.125, 0.25)  # values for zeros: exact in every floating type
TINY = 2.0**-14  # a smaller number may be denormal in float16
MOST = 1 << 15  # elements of a tensor that differ in a neighbor
LOOKED_AT = 1024  # elements: where these are not all zero, the rest is not looked at

Factors = Mapping[str, float]
"""Parameter -> power of two."""

LARGEST = 24  # exponent
CHANNELS_SECOND = (nn.modules.conv._ConvNd, nn.modules.batchnorm._NormBase, nn.GroupNorm)  # noqa: SLF001
"""Classes whose bias is for dimension 1 of the output; another's is for the last."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Data:
    """What of a variant's first data is changed.

    ``factors``: by which changed weights are multiplied. ``neighbor``: its number; 0 is the data itself.
    ``constant``: weights are constants of the compiled code, and a neighbor has other inputs.
    """

    weights: bool = False
    inputs: bool = False
    factors: Factors = field(default_factory=dict)
    neighbor: int = 0
    constant: bool = False


FIRST_DATA = Data()


@contextmanager
def placed(variant: Variant, data: Data) -> Iterator[tuple[str, ...]]:
    """Changes the variant's weights and inputs in place; yields what has changed.

    Before and afterwards the variant has its initial state (``Variant.restore``), and its weights of before.
    """
    undo: list[Callable[[], object]] = []
    program, module = variant.program, variant.program.module
    variant.restore()
    try:
        with torch.no_grad():
            rolled = data.neighbor if data.constant else 0
            targets = program.target
            inputs = (data.inputs or rolled) and change_tensors(program.given(), rolled, targets)
            changed = [INPUTS] if inputs else []
            if data.weights:
                undo.extend(_change_weights(module))  # one by one: a weight may not take the change
                undo += scale_weights(module, data.factors)
                changed += [WEIGHTS] if undo else []
            if data.neighbor and not data.constant:
                plain = ((n, p.data) for n, p in enumerate(module.parameters()) if _is_plain(p))
                undo.extend(_flip(weight, data.neighbor + n) for n, weight in plain)
        yield tuple(changed)
    finally:
        with torch.no_grad():
            for back in reversed(undo):
                back()
        variant.restore()
        variant.drive_with()  # its smaller batches are copies; and an error has left it observed


def _is_plain(tensor: torch.Tensor) -> bool:
    return type(tensor) in PLAIN and tensor.is_floating_point() and tensor.numel() > 0


def _flip(tensor: torch.Tensor, seed: int) -> Callable[[], object]:
    """Other last digits, less than 2**-10 of a value (2**-5 if all fit bfloat16). Returns how to undo it.

    Of a large tensor, every n-th element has them: enough for other values at all kinks.
    """
    memory, places = _evenly(tensor)
    part = memory[places]
    values = part.to(torch.float32)
    # by the values, not by the type: the fp64 copy of a bfloat16 weight must have the same neighbor
    kinds = ((torch.bfloat16, 16, 2), (torch.float16, 13, 3), (torch.float32, 0, 13))
    fits = [bits for kind, *bits in kinds if torch.equal(values.to(kind).to(part.dtype), part)]
    if not fits:
        return lambda: None
    shift, last = fits[0]
    generator = torch.Generator().manual_seed(seed)
    drawn = torch.randint(1 << last, values.shape, generator=generator, dtype=torch.int32, device="cpu")
    bits = drawn.to(values.device)
    bits = torch.where(values.abs() < TINY, 0, bits << shift)  # zeros would become denormal numbers

    def flip() -> None:
        changed = memory[places].to(torch.float32).view(torch.int32) ^ bits
        memory[places] = changed.view(torch.float32).to(memory.dtype)

    flip()
    return flip


def _evenly(tensor: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The tensor's memory, flat, and the places in it of evenly chosen elements.

    They are chosen by their indices: a copy in another memory format must have the same neighbor.
    """
    rest = torch.arange(0, tensor.numel(), max(1, tensor.numel() // MOST) | 1, device=tensor.device)
    places, last = torch.zeros_like(rest), 0
    for size, stride in zip(reversed(tensor.shape), reversed(tensor.stride()), strict=True):
        places += rest % size * stride
        rest = rest // size
        last += (size - 1) * stride
    return tensor.as_strided((last + 1,), (1,)), places


def has_plain_weights(module: nn.Module) -> bool:
    """Whether all weights are plain tensors. Quantized weights cannot be changed in place."""
    return all(type(parameter) in PLAIN for parameter in module.parameters())


# -- weights --------------------------------------------------------------------------


def _change_weights(module: nn.Module) -> Iterator[Callable[[], object]]:
    """Changes every floating weight, and the statistics that evaluation mode reads. Yields how to undo each.

    A part of each tensor changes its sign, which keeps its size and distribution. The part has another place
    in each tensor: equal signs in two factors would cancel. Zeros become small numbers.
    """
    for name, parameter in module.named_parameters():
        if (parameter.is_floating_point() or parameter.is_complex()) and parameter.numel():
            yield _change_weight(parameter.data, zlib.crc32(name.encode()))
    for name, part in module.named_modules():
        mean, variance = getattr(part, "running_mean", None), getattr(part, "running_var", None)
        if not part.training and isinstance(mean, torch.Tensor) and isinstance(variance, torch.Tensor):
            yield _change_weight(mean, zlib.crc32(name.encode()))
            _half(variance, zlib.crc32(name.encode())).mul_(2.0)  # restored with the other buffers


def _change_weight(tensor: torch.Tensor, seed: int) -> Callable[[], object]:
    if _is_zero(tensor):
        generator = torch.Generator().manual_seed(seed)
        places = torch.randint(len(STEPS), tensor.shape, generator=generator, device="cpu")
        tensor.copy_(torch.tensor(STEPS, device="cpu")[places])
        return tensor.zero_
    part = _half(tensor, seed)
    part.neg_()
    return part.neg_


def _is_zero(tensor: torch.Tensor) -> bool:
    start = tensor
    while start.dim() and start.numel() > LOOKED_AT and start.shape[0] > 1:
        start = start[: max(1, start.shape[0] // 2)]
    return not bool(start.any()) and not bool(tensor.any())


def _half(tensor: torch.Tensor, seed: int) -> torch.Tensor:
    """About half of the tensor, as a view: some slices of its longest dimension, chosen by ``seed``."""
    if tensor.dim() == 0:
        return tensor
    longest = max(range(tensor.dim()), key=lambda place: tensor.shape[place])
    size = tensor.shape[longest]
    length = max(1, size * (6 + seed % 5) // 16)
    start = (seed // 5) % (size - length + 1)
    return tensor.narrow(longest, start, length)


# -- inputs -----------------------------------------------------------------------------


def change_tensors(given: object, more: int, target: object = None) -> bool:
    """Changes these inputs and targets in place. Returns whether any has changed. ``more``: otherwise.

    ``target``: those of ``given`` that cannot be masks or positions.
    """
    tensors = {id(tensor): tensor for _, tensor in named_tensors(given, "given")}
    targets = {id(tensor) for _, tensor in named_tensors(target, "target")}
    changed = [_change_input(tensor, more, target=key in targets) for key, tensor in tensors.items()]
    return any(changed)


def _change_input(tensor: torch.Tensor, more: int, *, target: bool) -> bool:
    """Permutes values, and halves some of a floating tensor: none leaves the range from 0 to the largest.

    Masks, offsets and positions are left as they are: two values, sorted values, infinities. A ``target`` is
    none of them. Integers stay in their row, whose values may have a range of their own.
    """
    other = type(tensor) not in PLAIN or not has_memory(tensor)
    if tensor.numel() == 0 or tensor.dtype is torch.bool or other:
        return False
    if tensor.is_floating_point() or tensor.is_complex():
        if not bool(torch.isfinite(tensor).all()) or not bool(tensor.any()):
            return False
        moved = tensor.flatten().roll((3 * tensor.numel() // 8 + 2 * more) | 1).view(tensor.shape)
        _half(moved, 7).mul_(0.5)
    else:
        places = [place for place in range(tensor.dim()) if tensor.shape[place] > 1]
        if not places or (not target and _is_mask_or_position(tensor, places[-1])):
            return False
        moved = tensor.roll(max(1, 3 * tensor.shape[places[-1]] // 8 + more), places[-1])
    if torch.equal(moved, tensor):
        return False
    tensor.copy_(moved)
    return True


def _is_mask_or_position(tensor: torch.Tensor, place: int) -> bool:
    """Whether these integers are two values, or sorted along this dimension."""
    steps = tensor.diff(dim=place)
    two_values = bool(((tensor == tensor.min()) | (tensor == tensor.max())).all())
    return two_values or bool((steps >= 0).all()) or bool((steps <= 0).all())


# -- balance ----------------------------------------------------------------------------


def balance_of(module: nn.Module, run: Callable[[], object]) -> Factors:
    """The factors for ``module``; ``run`` is one forward of it. Leaves the weights as they are."""
    with torch.no_grad(), ExitStack() as undo:
        balance = _Balance(module, undo)
        run()
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

    def __init__(self, module: nn.Module, undo: ExitStack) -> None:
        self.factors: dict[str, float] = {}
        held = Counter(id(p) for part in module.modules() for p in {*part.parameters(recurse=False)})
        self._names = {id(parameter): name for name, parameter in module.named_parameters()}
        self._undo = undo
        for part in module.modules():
            own = list(part.parameters(recurse=False))
            inside = isinstance(part, nn.MultiheadAttention)  # which calls no module for its last product
            is_leaf = not list(part.children())
            for parameter in part.parameters() if inside else own:
                shared = held[id(parameter)] > 1 or (parameter.dim() > 1 and _has_several_weights(part))
                if inside or not is_leaf or shared:
                    self._raise(parameter)
            if own and is_leaf:
                undo.callback(part.register_forward_hook(self._after).remove)

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
            place = 1 if isinstance(part, CHANNELS_SECOND) else output.dim() - 1
            if output.dim() <= place or output.shape[place] != bias.numel():
                return None
            added = bias.to(output.dtype).view(-1, *(1,) * (output.dim() - 1 - place))
            weights = [weight for weight in weights if weight is not bias]
        rest = output - added
        factor = self._scale(weights[0], _inverse(scale_of(rest))) if len(weights) == 1 else 1.0
        if isinstance(added, torch.Tensor) and isinstance(bias, nn.Parameter):
            added = added * self._scale(bias, min(1.0, _inverse(scale_of(bias))))
        return rest * factor + added

    def _scale(self, parameter: torch.Tensor, factor: float) -> float:
        """Scales the parameter if no bit is lost. Returns the factor that it has now."""
        name = self._names.get(id(parameter), "")
        if name in self.factors or not name or factor == 1.0:
            return 1.0  # a module that is called again has the factor of its first call
        values = parameter.data
        scaled = values * factor
        if not bool(torch.isfinite(scaled).all()) or not torch.equal(scaled / factor, values):
            return 1.0
        values.mul_(factor)
        self._undo.callback(values.mul_, 1 / factor)
        self.factors[name] = factor
        return factor


def _has_several_weights(part: nn.Module) -> bool:
    """Whether it is not known how its output depends on each, as of an attention that calls no module."""
    bias = getattr(part, "bias", None)
    own = [parameter for parameter in part.parameters(recurse=False) if parameter is not bias]
    return sum(parameter.dim() > 1 for parameter in own) > 1


def _inverse(size: float) -> float:
    """The power of two that brings ``size`` next to 1; 1 for zero and what is not finite."""
    if not 0.0 < size < math.inf:
        return 1.0
    return 2.0 ** max(-LARGEST, min(LARGEST, -round(math.log2(size))))
