"""How far one tensor is from another: equal bits, ULP, SQNR, cosine. Definitions: ``docs/NUMERICS.md``.

All sums are computed in fp64.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import torch

BITS = {
    torch.float64: torch.int64,
    torch.float32: torch.int32,
    torch.bfloat16: torch.int16,
    torch.float16: torch.int16,
}
"""Floating type -> the integer of its size. Other types have no ULP."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Distance:
    """Of one tensor from another of the same shape and type.

    ``equal``: elements with equal bits; two NaN are equal, 0 and -0 are not. ``undefined``: unequal elements
    of which one is infinite or NaN. ``ulp``: of the finite elements of a floating type, flat, fp64; empty for
    integers and booleans.
    """

    elements: int
    equal: int
    undefined: int
    ulp: torch.Tensor

    @property
    def bit_equal(self) -> bool:
        return self.equal == self.elements


def distance(first: torch.Tensor, second: torch.Tensor) -> Distance:
    """Raises ``ValueError`` if shapes or types differ. A complex tensor counts as its two real parts."""
    if first.shape != second.shape or first.dtype != second.dtype:
        raise ValueError(f"{first.dtype} {tuple(first.shape)} and {second.dtype} {tuple(second.shape)}")
    left, right = (_flat(side) for side in (first, second))
    kind = BITS.get(left.dtype)
    if kind is None:
        equal = int((left == right).sum())
        return Distance(elements=left.numel(), equal=equal, undefined=0, ulp=torch.empty(0).double())
    finite = left.isfinite() & right.isfinite()
    same = (left.view(kind) == right.view(kind)) | (left.isnan() & right.isnan())
    steps = _steps(_ordered(left, kind), _ordered(right, kind))
    return Distance(
        elements=left.numel(),
        equal=int(same.sum()),
        undefined=int((~finite & ~same).sum()),
        ulp=steps if bool(finite.all()) else steps[finite],
    )


def quantiles(ulp: Iterable[torch.Tensor], shares: Iterable[float]) -> list[float]:
    """Of the elements of all tensors together; NaN if there are none. 1.0 is the largest.

    The share q is the smallest value that at least the share q of the elements does not exceed.
    """
    values = torch.cat([*ulp, torch.empty(0).double()])
    count = values.numel()
    places = [max(1, math.ceil(share * count)) for share in shares]
    return [float(values.kthvalue(place).values) if count else math.nan for place in places]


def sqnr_db(exact: torch.Tensor, other: torch.Tensor) -> float:
    """10 log10(sum exact^2 / sum (other - exact)^2), in dB; inf without error, NaN if it is not defined."""
    truth, error = exact.double(), other.double() - exact.double()
    signal, noise = float((truth * truth).sum()), float((error * error).sum())
    if noise == 0.0:
        return math.inf
    return 10.0 * math.log10(signal / noise) if 0.0 < signal < math.inf and noise < math.inf else math.nan


def cosine(first: torch.Tensor, second: torch.Tensor) -> float:
    """Of the angle between two tensors as vectors; NaN if one is zero."""
    left, right = first.double().flatten(), second.double().flatten()
    lengths = float(left.norm()) * float(right.norm())
    return float(left @ right) / lengths if lengths else math.nan


def _flat(tensor: torch.Tensor) -> torch.Tensor:
    plain = tensor.detach().resolve_conj().resolve_neg() if tensor.is_complex() else tensor.detach()
    return (torch.view_as_real(plain) if plain.is_complex() else plain).reshape(-1)


def _ordered(values: torch.Tensor, kind: torch.dtype) -> torch.Tensor:
    """The place of each value among those of its type, int64; 0 and -0 share one."""
    bits = values.view(kind).to(torch.int64)
    low = torch.iinfo(kind).min
    return torch.where(bits < 0, low - bits, bits)


def _steps(places: torch.Tensor, others: torch.Tensor) -> torch.Tensor:
    """How far they are apart, in fp64: exact to 2^53. Of fp64's two signs, an int64 would overflow."""
    apart = (places - others).abs().double()
    across = places.double().abs() + others.double().abs()
    return torch.where((places < 0) == (others < 0), apart, across)
