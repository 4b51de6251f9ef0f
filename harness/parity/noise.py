"""Noisy eager: a step in eager whose operations round at random.

Every floating result of an operation, forward and backward, is multiplied by 1 +- k u, u the machine epsilon
of its type, with random signs (Monte Carlo arithmetic: Parker 1997). Such a run crosses kinks, loses sums
that cancel, changes routes and amplifies roundings as often as this model does on this data. The signs have
a fixed seed, so that a verdict repeats.

A normalization is one operation with a mean inside. The mean rounds once for a whole channel or row, which
noise on each element of the output never does; the output therefore follows the noise of the mean.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import torch

from harness.devices import of
from harness.precision import Precision
from harness.tensors import has_memory
from harness.timing.modes import Operations

LOUDNESS = 2.0  # RMS of the noise in units of the last place: outputs are about 3 times as far off as eager's
LOUDNESS_REDUCED = 0.5  # about 2.2 times as far off: an operation rounds once, to 0.3 units
POOL = (1 << 20) + 7  # factors; no power of two, so that the rows of a matrix do not get the same ones
LAST_BITS = {
    torch.float32: (torch.int32, 0xFF),
    torch.bfloat16: (torch.int16, 0x7),
    torch.float16: (torch.int16, 0x3F),
}
"""Type -> an integer of its size, and last bits of its fraction: where all are zero, a result is exact."""
UNROUNDED = frozenset((
    *("clone", "copy_", "_to_copy", "cat", "stack", "index", "index_select", "gather", "embedding", "where"),
    *("masked_fill", "masked_fill_", "constant_pad_nd", "roll", "flip", "repeat", "fill_", "zero_", "relu"),
    *("relu_", "neg", "abs", "max_pool2d_with_indices", "select_backward", "slice_backward", "empty_like"),
    *("empty", "empty_strided", "new_empty", "new_empty_strided", "full", "full_like", "native_dropout"),
    *("_unsafe_view", "amax", "amin", "aminmax", "max", "min", "maximum", "minimum", "median", "nanmedian"),
    *("sort", "topk", "cummax", "cummin", "clamp", "clamp_", "clamp_min", "clamp_max", "hardtanh"),
    *("hardtanh_", "adaptive_max_pool2d", "max_pool3d_with_indices", "upsample_nearest2d", "tril", "triu"),
    *("index_copy", "index_copy_", "index_fill", "index_fill_", "masked_scatter", "masked_scatter_", "set_"),
    *("slice_scatter", "select_scatter", "unsafe_split", "unsafe_split_with_sizes", "unsqueeze_", "squeeze_"),
    *("t_", "transpose_", "detach_"),
))  # fmt: skip
"""Operations that move values or choose among them, and so round nothing. The gradient of a maximum goes to
where the input equals the result: with noise on the result it would be 0 / 0.
"""
BY_ARGUMENT = frozenset((
    *("scatter_reduce", "scatter_reduce_", "index_reduce", "index_reduce_", "segment_reduce", "norm", "dist"),
    *("linalg_vector_norm", "_cdist_forward", "_pdist_forward"),
))  # fmt: skip
"""Operations that choose a maximum, and so round nothing, if one of ``EXTREMES`` is an argument."""
EXTREMES = ("amax", "amin", "max", "min", math.inf, -math.inf)
BOUNDED = frozenset(("sigmoid", "sigmoid_", "_softmax", "tanh", "tanh_"))
"""Operations whose results no rounding leads beyond 1, which a loss or a distribution may check."""
LAYERS, GROUPS = "native_layer_norm", "native_group_norm"
WEIGHTS = {
    **dict.fromkeys(("native_batch_norm", "_native_batch_norm_legit", "_batch_norm_with_update"), 1),
    **dict.fromkeys(("cudnn_batch_norm", "miopen_batch_norm", GROUPS), 1),
    LAYERS: 2,
}
"""Normalization -> place of its weight. Its results begin with output, mean and inverse deviation."""


def loudness(precision: Precision) -> float:
    return LOUDNESS_REDUCED if precision.reduced else LOUDNESS


class Noise(Operations):
    """``loudness``: RMS of the noise in units of a result's last place. ``seed``: of its signs."""

    def __init__(self, loudness: float, seed: int) -> None:
        super().__init__()
        self._loudness, self._seed = loudness, seed
        self._generator = torch.Generator().manual_seed(seed)
        self._pools: dict[tuple[torch.dtype, torch.device], torch.Tensor] = {}

    def operation(self, func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        result = func(*args, **kwargs)
        name = func.overloadpacket.__name__
        mean = _mean_of(name, result)
        if not _rounds_nothing(name, args):
            results = result if isinstance(result, tuple) else (result,)
            for value, returned in zip(results, func._schema.returns, strict=False):  # noqa: SLF001
                alias = returned.alias_info
                for tensor in value if isinstance(value, list) else [value]:
                    if isinstance(tensor, torch.Tensor) and (alias is None or alias.is_write):
                        self._disturb(tensor)
            if name in BOUNDED and result.dtype in LAST_BITS and has_memory(result):
                result.clamp_(-1.0, 1.0)
        if mean is not None:
            _follow(name, args[WEIGHTS[name]], result, mean)
        return result

    def _disturb(self, tensor: torch.Tensor) -> None:
        if tensor.dtype not in LAST_BITS or not _is_dense(tensor):
            return
        kind, last = LAST_BITS[tensor.dtype]
        pool = self._pool(tensor)
        for part in torch.split(tensor.detach().as_strided((tensor.numel(),), (1,)), len(pool) // 2):
            last_start = len(pool) - part.numel()
            start = int(torch.randint(last_start, (1,), generator=self._generator, device="cpu"))
            exact = part.view(kind).bitwise_and(last) == 0
            exact |= part.abs() > torch.finfo(part.dtype).max / 2  # a mask must not become an infinity
            part.mul_(pool[start : start + part.numel()].masked_fill(exact, 1.0))

    def _pool(self, tensor: torch.Tensor) -> torch.Tensor:
        """Factors 1 +- k epsilon, whose deviation from 1 has a root mean square of ``loudness`` epsilon.

        Each part of a tensor takes ten launches, which cost an accelerator more than the elements: its parts
        are larger, and ``POOL`` repeats.
        """
        key = tensor.dtype, tensor.device
        if key not in self._pools:
            if self._pools:
                units = _units(self._loudness, self._generator)
            else:
                units, state = _first_units(self._loudness, self._seed)
                self._generator.set_state(state)
            factors = 1.0 + units.float() * torch.finfo(tensor.dtype).eps  # exact: whole units
            self._pools[key] = factors.to(tensor.device, tensor.dtype).repeat(of(tensor.device).pace.pools)
        return self._pools[key]


def _units(loudness: float, generator: torch.Generator) -> torch.Tensor:
    """``POOL`` signed units of the last place, with this root mean square."""
    draws = torch.rand(3, POOL, generator=generator, device="cpu")
    units = torch.floor(max(1.0, loudness) + draws[0])
    units *= (draws[1] < min(1.0, loudness**2)) * torch.where(draws[2] < 0.5, -1.0, 1.0)
    return units.to(torch.int8)


@lru_cache(maxsize=16)  # runs on other data have the same seeds; a megabyte each
def _first_units(loudness: float, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The units that a generator of this seed draws first, and its state then."""
    with torch.inference_mode(mode=False):
        generator = torch.Generator().manual_seed(seed)
        return _units(loudness, generator), generator.get_state()


def _rounds_nothing(name: str, args: tuple[Any, ...]) -> bool:
    if name not in BY_ARGUMENT:
        return name in UNROUNDED
    return any(arg in EXTREMES for arg in args if isinstance(arg, (str, float)))


def _mean_of(name: str, result: Any) -> torch.Tensor | None:
    """A copy of the mean that a normalization has computed in this call; None for another operation.

    In reduced precision the mean has float32's roundings, which do not matter there.
    """
    if name not in WEIGHTS:
        return None
    output, mean, *_ = result
    if not has_memory(output) or not has_memory(mean):
        return None
    return mean.clone() if mean.numel() and output.dtype is torch.float32 else None


def _follow(
    name: str, weight: torch.Tensor | None, result: tuple[torch.Tensor, ...], mean: torch.Tensor
) -> None:
    """Shifts the output as if it had been computed from the disturbed mean."""
    output, disturbed, inverse_deviation, *_ = result
    shift = (disturbed - mean) * inverse_deviation
    if name == GROUPS:
        shift = shift.repeat_interleave(output.shape[1] // shift.shape[1], dim=1)
    if name != LAYERS:
        rest = [1] * (output.dim() - 2)
        shift = shift.view(-1, output.shape[1], *rest)
        weight = None if weight is None else weight.view(-1, *rest)
    output.sub_(shift if weight is None else shift * weight)


def _is_dense(tensor: torch.Tensor) -> bool:
    """Whether its elements fill its memory without gaps, in any order of the dimensions."""
    if type(tensor) is not torch.Tensor or not has_memory(tensor) or tensor.numel() == 0:
        return False
    expected = 1
    for stride, size in sorted((s, n) for s, n in zip(tensor.stride(), tensor.shape, strict=True) if n > 1):
        if stride != expected:
            return False
        expected *= size
    return True
