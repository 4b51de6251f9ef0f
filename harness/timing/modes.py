"""Modes of torch: what an fp64 forward needs so that it does not fail, and what sees each operation.

A failed fp64 forward leaves parity no truth but eager. Operations without an fp64 kernel in torch are
computed by operations that have one. A constant that fits fp64 alone, such as a mask's
``torch.full((), torch.finfo(x.dtype).min)``, becomes fp64.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from functools import partial
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

GROUPED = "_grouped_mm"  # also the name of ``torch.nn.functional.grouped_mm``
CONSTANTS = ("full", "tensor")
COMPUTES_ITSELF = "flex_attention"  # beside the functions that it is given
KERNEL = torch._C.DispatchKey.CompositeExplicitAutograd  # noqa: SLF001


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


class Operations(TorchDispatchMode):  # type: ignore[no-untyped-call] # of torch
    """``operation`` runs each. Operators that take functions compile themselves in eager, also in a mode."""

    supports_higher_order_operators = True

    def __init_subclass__(cls) -> None:  # torch's has no types
        super().__init_subclass__()  # type: ignore[no-untyped-call]

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        return True  # else Dynamo gives up the operators' own code, for this process

    def operation(self, func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """Runs one operation of torch."""
        return func(*args, **kwargs)

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        if isinstance(func, torch._ops.OpOverload):  # noqa: SLF001 - torch has no other name
            return self.operation(func, args, kwargs or {})
        from torch._guards import detect_fake_mode
        from torch.utils._python_dispatch import _disable_current_modes

        kwargs, dense = kwargs or {}, func.py_kernels.get(KERNEL)
        if dense is None or detect_fake_mode((args, kwargs)) is not None:
            return func(*args, **kwargs)  # torch traces it
        if func.name().startswith(COMPUTES_ITSELF):
            with self:
                return dense(*args, **kwargs)
        with _disable_current_modes() as others:
            inside = partial(_inside, (*others, self))
            return dense(*(partial(inside, arg) if callable(arg) else arg for arg in args), **kwargs)


def _inside(modes: Iterable[Any], function: Any, *args: Any) -> Any:
    with ExitStack() as stack:
        for mode in modes:
            stack.enter_context(mode)
        return function(*args)
