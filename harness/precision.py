"""The meaning of each word of ``--dtypes``: a cast of module and inputs, autocast of the forward, or TF32.

``unit`` is the machine epsilon of the lowest precision in use: the relative error of one rounding. The
limits of parity are multiples of it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import torch

from harness import devices
from harness.schema import Scalar

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
        """The lowest precision to which the step rounds values."""
        return self.autocast or self.cast or torch.float32

    @property
    def unit(self) -> float:
        unit = float(torch.finfo(self.lowest).eps)
        return max(unit, TF32_UNIT) if self.tf32 else unit

    @property
    def reduced(self) -> bool:
        return self.tf32 or self.lowest in (torch.float16, torch.bfloat16)

    def context(self, device_type: str) -> AbstractContextManager[Any]:
        """The autocast context of one forward and loss; a null context if the precision has no autocast."""
        if self.autocast is None:
            return contextlib.nullcontext()
        return torch.autocast(device_type=device_type, dtype=self.autocast)

    def surroundings(self) -> AbstractContextManager[None]:
        """A context, backward included, in which float32 products may use TF32 if the precision has it."""
        return _tf32_products() if self.tf32 else contextlib.nullcontext()


def precision(name: str, device_type: str) -> Precision:
    """The precision called ``name`` on this kind of device. ``ValueError`` if there is none."""
    word, _, more = name.partition("+")
    tf32 = "tf32" in (word, more)
    if word == "amp":
        word = f"amp_{devices.of(device_type).autocast_dtype}"
    known = word in CASTS or word in AUTOCASTS or (word == "tf32" and not more)
    if not known or more not in ("", "tf32"):
        raise ValueError(f"there is no precision called {name!r}")
    return Precision(name=name, cast=CASTS.get(word), autocast=AUTOCASTS.get(word), tf32=tf32)


def settle(device: torch.device, *, tf32: bool = False) -> bool:
    """Makes ``device`` the current device, and sets whether float32 products may use TF32 in this process.

    cuDNN's convolutions use TF32 by default, and a model's code may change torch's settings. A model's code
    that asks for "cuda" gets the measured device. Returns whether a setting of TF32 was another one.
    """
    devices.of(device).make_current()
    before = facts()
    torch.set_float32_matmul_precision("highest")  # of the CPU's products, too
    for newer in (torch.backends, torch.backends.cudnn):
        if getattr(newer, "fp32_precision", "none") != "none":
            setattr(newer, "fp32_precision", "none")  # noqa: B010 - general: the older switches inherit it
    allow_tf32(tf32)
    return before != facts()


def allow_tf32(allowed: bool) -> None:
    """Sets whether products and convolutions of float32 tensors may use TF32.

    ``RuntimeError`` where torch ignores it, as on AMD cards without the variable.
    """
    torch.backends.cuda.matmul.allow_tf32 = allowed
    torch.backends.cudnn.allow_tf32 = allowed
    if allowed and _switches()[0] is False:
        raise RuntimeError("torch ignores TF32 here: set HIPBLASLT_ALLOW_TF32=1 (AMD), or leave tf32 out")


def facts() -> dict[str, Scalar]:
    """torch's settings that change the speed or the rounding of its libraries, for a record's environment."""
    matmul, cudnn = _switches()
    kinds = {kind: getattr(torch.backends.cudnn, kind, None) for kind in ("conv", "rnn")}
    # "none" or "tf32"; None before torch 2.9
    newer = {f"cudnn_{kind}_precision": getattr(of, "fp32_precision", None) for kind, of in kinds.items()}
    return {
        "matmul_precision": _told(torch.get_float32_matmul_precision),
        "matmul_allow_tf32": matmul,
        "cudnn_allow_tf32": cudnn,
        **newer,
        "cudnn_benchmark": torch.backends.cudnn.benchmark,
        "cudnn_deterministic": torch.backends.cudnn.deterministic,
        "deterministic_algorithms": torch.are_deterministic_algorithms_enabled(),
    }


def _told(read: Callable[[], Any]) -> Any:
    """None if torch refuses to tell, because its older and its newer settings were both used."""
    try:
        return read()
    except RuntimeError:
        return None


def _switches() -> tuple[bool | None, bool | None]:
    """Whether products and convolutions may use TF32; None if torch refuses to tell."""
    matmul, cudnn = torch.backends.cuda.matmul, torch.backends.cudnn
    return _told(lambda: matmul.allow_tf32), _told(lambda: cudnn.allow_tf32)


@contextlib.contextmanager
def _tf32_products() -> Iterator[None]:
    before = _switches()
    try:
        allow_tf32(True)
        yield
    finally:
        torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32 = map(bool, before)
