"""Other weights and inputs of the same shapes, put in place into a variant that is already compiled.

Compiled code must read its weights and inputs at every call. Code that kept their first values (a graph
folded to a constant, weights that became constants, a CUDA graph whose inputs are not refreshed) passes
every check on the data that it was compiled with. All changes are exact in every floating type, so that
eager, fp64 and candidate have the same values, and a variant's weights can be restored bit by bit.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import nn

from harness.parity.parts.balance import NONE, Factors, scale_weights
from harness.tensors import named_tensors
from harness.timing.step import Variant

WEIGHTS, INPUTS = "weights", "inputs"
PLAIN = (torch.nn.Parameter, torch.Tensor)
STEPS = (-0.25, -0.125, 0.125, 0.25)  # values for zeros: exact in every floating type
LOOKED_AT = 1024  # elements: where these are not all zero, the rest is not looked at


@contextmanager
def other_data(
    variant: Variant, *, weights: bool, inputs: bool = True, factors: Factors = NONE
) -> Iterator[tuple[str, ...]]:
    """Changes the variant's inputs (``inputs``) and its weights (``weights``); yields what has changed.

    ``factors``: by which the changed weights are multiplied (``harness.parity.parts.balance``).

    ``variant`` must have its initial buffers and inputs. Afterwards its weights are as before. Its inputs and
    buffers are not: ``Variant.restore`` restores them.
    """
    undo: list[Callable[[], object]] = []
    with torch.no_grad():
        changed = [INPUTS] if inputs and _change_inputs(variant) else []
        if weights:
            undo = list(_change_weights(variant.program.module))
            undo += scale_weights(variant.program.module, factors)
            changed += [WEIGHTS] if undo else []
    try:
        yield tuple(changed)
    finally:
        with torch.no_grad():
            for one in reversed(undo):
                one()


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


def _change_inputs(variant: Variant) -> bool:
    """Changes the inputs and the target in place. Returns whether any of them has changed."""
    program = variant.program
    given = named_tensors((program.args, dict(program.kwargs), program.target), "given")
    changed = [_change_input(tensor) for tensor in {id(t): t for _, t in given}.values()]
    return any(changed)


def _change_input(tensor: torch.Tensor) -> bool:
    """Permutes values, and halves some of a floating tensor: no value leaves the range from 0 to the largest.

    Masks, offsets and positions are left as they are: two values, sorted values, infinities.
    """
    if tensor.numel() < 2 or tensor.dtype is torch.bool or type(tensor) not in PLAIN:
        return False
    if tensor.is_floating_point() or tensor.is_complex():
        if not bool(torch.isfinite(tensor).all()) or not bool(tensor.any()):
            return False
        moved = tensor.flatten().roll((3 * tensor.numel() // 8) | 1).view(tensor.shape)
        _half(moved, 7).mul_(0.5)
    else:
        place = max(place for place in range(tensor.dim()) if tensor.shape[place] > 1)
        steps = tensor.diff(dim=place)
        two_values = bool(((tensor == tensor.min()) | (tensor == tensor.max())).all())
        if two_values or bool((steps >= 0).all()) or bool((steps <= 0).all()):
            return False
        moved = tensor.roll(max(1, 3 * tensor.shape[place] // 8), place)
    if torch.equal(moved, tensor):
        return False
    tensor.copy_(moved)
    return True
