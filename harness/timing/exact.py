"""What an fp64 forward needs so that it does not fail: a failed one leaves parity no truth but eager.

Operations without an fp64 kernel in torch are computed by operations that have one. A constant that fits
fp64 alone, such as a mask's ``torch.full((), torch.finfo(x.dtype).min)``, becomes fp64.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

GROUPED = "_grouped_mm"  # also the name of ``torch.nn.functional.grouped_mm``
CONSTANTS = ("full", "tensor")


class InFp64(TorchFunctionMode):
    """The context of an fp64 forward."""

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Iterable[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        name, given = getattr(func, "__name__", ""), dict(kwargs or {})
        if name == GROUPED and args and args[0].dtype == torch.float64:
            func = grouped_product
        elif name in CONSTANTS and given.get("dtype") is None and any(map(_fits_fp64_alone, args)):
            given["dtype"] = torch.float64
        return func(*args, **given)


def _fits_fp64_alone(value: object) -> bool:
    return isinstance(value, float) and torch.finfo(torch.float32).max < abs(value) < math.inf


def grouped_product(
    a: Tensor,
    b: Tensor,
    offs: Tensor | None = None,
    bias: Tensor | None = None,
    out_dtype: torch.dtype | None = None,
) -> Tensor:
    """``torch.nn.functional.grouped_mm``: the products of G groups, which mixtures of experts use.

    ``offs`` (G,) has the ends of the groups in the dimension s. The shapes of ``a`` and ``b``, and of the
    result: (s, k), (G, k, n) -> (s, n); (G, m, k), (k, s) -> (m, s); (m, s), (s, n) -> (G, m, n); and
    (G, m, k), (G, k, n) -> (G, m, n) without ``offs``. What lies behind the last end is zero.
    """
    groups = [slice(*ends) for ends in pairwise([0, *offs.tolist()])] if offs is not None else []
    if a.dim() == b.dim() == 3:
        product = a @ b
    elif a.dim() == b.dim():
        product = torch.stack([a[:, group] @ b[group] for group in groups])
    else:
        rows = a.dim() == 2
        each = [a[s] @ b[g] if rows else a[g] @ b[:, s] for g, s in enumerate(groups)]
        product = torch.cat(each, dim=0 if rows else 1)
        missing = (a.shape[0] if rows else b.shape[1]) - product.shape[0 if rows else 1]
        product = torch.nn.functional.pad(product, (0, 0, 0, missing) if rows else (0, missing))
    product = product if bias is None else product + bias
    return product if out_dtype is None else product.to(out_dtype)
