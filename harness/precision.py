"""What each ``--dtypes`` word means: a cast of module and inputs, or autocast round the forward.

``unit`` is the spacing of the lowest precision in use relative to 1 (machine
epsilon): the error that one rounding may make, and so the yardstick of parity.
"""

from __future__ import annotations

import contextlib
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import torch


@dataclass(frozen=True, slots=True, kw_only=True)
class Precision:
    name: str
    cast: torch.dtype | None
    autocast: torch.dtype | None

    @property
    def lowest(self) -> torch.dtype:
        """The lowest precision that values are rounded to on the way."""
        return self.autocast or self.cast or torch.float32

    @property
    def unit(self) -> float:
        return float(torch.finfo(self.lowest).eps)

    @property
    def reduced(self) -> bool:
        return self.lowest in (torch.float16, torch.bfloat16)

    def context(self, device_type: str) -> AbstractContextManager[Any]:
        """The autocast context of one forward and loss (a null context without autocast)."""
        if self.autocast is None:
            return contextlib.nullcontext()
        return torch.autocast(device_type=device_type, dtype=self.autocast)


def precision(name: str, device_type: str) -> Precision:
    """The precision called ``name`` on that kind of device. ``ValueError`` if there is none."""
    if name == "amp":
        # autocast's own choice: float16 on CUDA, bfloat16 on a CPU
        usual = torch.float16 if device_type == "cuda" else torch.bfloat16
        return Precision(name=name, cast=None, autocast=usual)
    casts = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
    if name not in casts:
        raise ValueError(f"there is no precision called {name!r}")
    return Precision(name=name, cast=casts[name], autocast=None)
