"""inductor's modes: each row is a compiler, like a file of ``harness/backends``. Imports no torch."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from harness.program import Compiled, Program


@dataclass(frozen=True, slots=True, kw_only=True)
class Preset:
    """Replaces the module of a compiler. ``mode`` is the argument of ``torch.compile``."""

    name: str
    about: str
    mode: str | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    with_cudagraphs: bool = False

    @property
    def __doc__(self) -> str:  # type: ignore[override]
        return self.about

    def compile(self, program: Program) -> Compiled:
        compiled: Compiled = _inductor().compile_preset(program, self)
        return compiled

    def why_unavailable(self, device_type: str) -> str | None:
        why: str | None = _inductor().why_no_inductor(device_type)
        return why


def _inductor() -> Any:
    # imported by name, because the runner reads the presets and must not import torch
    return importlib.import_module("harness.backends.shared.inductor")


ROWS = (
    Preset(name="inductor", about="torch.compile's default backend in its default mode."),
    Preset(
        name="inductor_reduce_overhead",
        about='inductor with CUDA graphs (mode "reduce-overhead").',
        mode="reduce-overhead",
        with_cudagraphs=True,
    ),
    Preset(
        name="inductor_max_autotune",
        about='inductor, its kernels chosen by measurement, with CUDA graphs (mode "max-autotune").',
        mode="max-autotune",
        with_cudagraphs=True,
    ),
    Preset(
        name="inductor_max_autotune_no_cudagraphs",
        about="inductor, its kernels chosen by measurement, without CUDA graphs.",
        mode="max-autotune-no-cudagraphs",
    ),
    Preset(
        name="inductor_no_cudagraphs",
        about="inductor with CUDA graphs switched off, whatever the configuration's default is.",
        settings=MappingProxyType({"triton.cudagraphs": False}),
    ),
)
PRESETS: Mapping[str, Preset] = MappingProxyType({row.name: row for row in ROWS})
