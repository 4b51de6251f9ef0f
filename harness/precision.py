"""What each ``--dtypes`` word means: a cast of module and inputs, autocast round the forward, TF32 or not.

``unit`` is the spacing of the lowest precision in use relative to 1 (machine
epsilon): the error that one rounding may make, and so the yardstick of parity.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import torch

TF32_UNIT = 2.0**-10
"""Products in TF32 keep ten bits of each factor's fraction."""

CASTS = {"float32": None, "bfloat16": torch.bfloat16, "float16": torch.float16}
AUTOCASTS = {"amp_bfloat16": torch.bfloat16, "amp_float16": torch.float16}


@dataclass(frozen=True, slots=True, kw_only=True)
class Precision:
    name: str
    cast: torch.dtype | None
    autocast: torch.dtype | None
    tf32: bool = False

    @property
    def lowest(self) -> torch.dtype:
        """The lowest precision that values are rounded to on the way."""
        return self.autocast or self.cast or torch.float32

    @property
    def unit(self) -> float:
        unit = float(torch.finfo(self.lowest).eps)
        return max(unit, TF32_UNIT) if self.tf32 else unit

    @property
    def reduced(self) -> bool:
        return self.tf32 or self.lowest in (torch.float16, torch.bfloat16)

    def context(self, device_type: str) -> AbstractContextManager[Any]:
        """The autocast context of one forward and loss (a null context without autocast)."""
        if self.autocast is None:
            return contextlib.nullcontext()
        return torch.autocast(device_type=device_type, dtype=self.autocast)

    def surroundings(self) -> AbstractContextManager[None]:
        """The settings of a whole step, backward included: whether float32 products may be made in TF32."""
        return _tf32_products() if self.tf32 else contextlib.nullcontext()


def precision(name: str, device_type: str) -> Precision:
    """The precision called ``name`` on that kind of device. ``ValueError`` if there is none."""
    word, _, more = name.partition("+")
    tf32 = word == "tf32" or more == "tf32"
    if more not in ("", "tf32") or (word == "tf32" and more):
        raise ValueError(f"there is no precision called {name!r}")
    if word == "amp":
        # autocast's own choice: float16 on CUDA, bfloat16 on a CPU
        word = "amp_float16" if device_type == "cuda" else "amp_bfloat16"
    if word in AUTOCASTS:
        return Precision(name=name, cast=None, autocast=AUTOCASTS[word], tf32=tf32)
    word = "float32" if word == "tf32" else word
    if word not in CASTS:
        raise ValueError(f"there is no precision called {name!r}")
    return Precision(name=name, cast=CASTS[word], autocast=None, tf32=tf32)


def settle(device: torch.device) -> None:
    """Makes float32 mean float32 in this process, and "cuda" the device of that number.

    A model's code may ask for "cuda" and mean what it is measured on; and cuDNN's convolutions use TF32
    by default.
    """
    if device.type == "cuda" and device.index is not None:
        torch.cuda.set_device(device)
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False


@contextlib.contextmanager
def _tf32_products() -> Iterator[None]:
    before = torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = True
    torch.backends.cudnn.allow_tf32 = True
    try:
        yield
    finally:
        torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32 = before
