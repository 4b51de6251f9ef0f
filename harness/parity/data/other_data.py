"""Other weights and inputs of the same shapes, put in place into a variant that is already compiled.

Compiled code must read its weights and inputs at every call. Code that kept their first values (a graph
folded to a constant, weights that became constants, a CUDA graph whose inputs are not refreshed) passes
every check on the data that it was compiled with. A *neighbor* of some data has other last digits: it has
other values next to the kinks of a model, and is otherwise alike. All changes are exact in every floating
type, so that eager, fp64 and candidate have the same values, and a variant's weights can be restored bit by
bit.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import torch
from torch import nn

from harness.parity.data.balance import Factors, scale_weights
from harness.tensors import named_tensors
from harness.timing.step import Variant

WEIGHTS, INPUTS = "weights", "inputs"
PLAIN = (torch.nn.Parameter, torch.Tensor)
STEPS = (-0.25, -0.125, 0.125, 0.25)  # values for zeros: exact in every floating type
TINY = 2.0**-14  # a smaller number may be denormal in float16
MOST = 1 << 15  # elements of a tensor that differ in a neighbor
LOOKED_AT = 1024  # elements: where these are not all zero, the rest is not looked at


@dataclass(frozen=True, slots=True, kw_only=True)
class Data:
    """What of a variant's first data is changed.

    ``factors``: by which changed weights are multiplied (``harness.parity.data.balance``). ``neighbor``: its
    number; 0 is the data itself. ``constant``: weights are constants of the compiled code, and a neighbor has
    other inputs.
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

    ``variant`` must have its initial buffers and inputs. Afterwards its weights are as before. Its inputs and
    buffers are not: ``Variant.restore`` restores them.
    """
    undo: list[Callable[[], object]] = []
    module = variant.program.module
    with torch.no_grad():
        rolled = data.neighbor if data.constant else 0
        changed = [INPUTS] if (data.inputs or rolled) and _change_inputs(variant, rolled) else []
        if data.weights:
            undo = list(_change_weights(module))
            undo += scale_weights(module, data.factors)
            changed += [WEIGHTS] if undo else []
        if data.neighbor and not data.constant:
            undo += [
                _flip(p.data, data.neighbor + n) for n, p in enumerate(module.parameters()) if _is_plain(p)
            ]
    try:
        yield tuple(changed)
    finally:
        with torch.no_grad():
            for back in reversed(undo):
                back()


def _is_plain(tensor: torch.Tensor) -> bool:
    return type(tensor) in PLAIN and tensor.is_floating_point()


def _flip(tensor: torch.Tensor, seed: int) -> Callable[[], object]:
    """Other last digits, up to 2**-10 of a value (2**-6 in bfloat16). Returns how to undo it.

    Of a large tensor, every n-th element has them: enough for other values at all kinks.
    """
    part = tensor.view(-1)[:: max(1, tensor.numel() // MOST) | 1] if tensor.is_contiguous() else tensor
    values = part.to(torch.float32)
    # by the values, not by the type: the fp64 copy of a bfloat16 weight must have the same neighbor
    kinds = ((torch.bfloat16, 16, 2), (torch.float16, 13, 3), (torch.float32, 0, 13))
    fits = [bits for kind, *bits in kinds if torch.equal(values.to(kind).to(part.dtype), part)]
    if not fits:
        return lambda: None
    shift, last = fits[0]
    generator = torch.Generator().manual_seed(seed)
    bits = torch.randint(1 << last, values.shape, generator=generator, dtype=torch.int32).to(values.device)
    bits = torch.where(values.abs() < TINY, 0, bits << shift)  # zeros would become denormal numbers

    def flip() -> None:
        changed = part.to(torch.float32).view(torch.int32) ^ bits
        part.copy_(changed.view(torch.float32))

    flip()
    return flip


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
        values = torch.tensor(STEPS)[torch.randint(len(STEPS), tensor.shape, generator=generator)]
        tensor.copy_(values)
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


def _change_inputs(variant: Variant, more: int) -> bool:
    """Changes the inputs and the target in place. Returns whether any of them has changed."""
    program = variant.program
    given = named_tensors((program.args, dict(program.kwargs), program.target), "given")
    changed = [_change_input(tensor, more) for tensor in {id(t): t for _, t in given}.values()]
    return any(changed)


def _change_input(tensor: torch.Tensor, more: int) -> bool:
    """Permutes values, and halves some of a floating tensor: none leaves the range from 0 to the largest.

    Masks, offsets and positions are left as they are: two values, sorted values, infinities.
    """
    if tensor.numel() < 2 or tensor.dtype is torch.bool or type(tensor) not in PLAIN:
        return False
    if tensor.is_floating_point() or tensor.is_complex():
        if not bool(torch.isfinite(tensor).all()) or not bool(tensor.any()):
            return False
        moved = tensor.flatten().roll((3 * tensor.numel() // 8 + 2 * more) | 1).view(tensor.shape)
        _half(moved, 7).mul_(0.5)
    else:
        place = max(place for place in range(tensor.dim()) if tensor.shape[place] > 1)
        steps = tensor.diff(dim=place)
        two_values = bool(((tensor == tensor.min()) | (tensor == tensor.max())).all())
        if two_values or bool((steps >= 0).all()) or bool((steps <= 0).all()):
            return False
        moved = tensor.roll(max(1, 3 * tensor.shape[place] // 8 + more), place)
    if torch.equal(moved, tensor):
        return False
    tensor.copy_(moved)
    return True
