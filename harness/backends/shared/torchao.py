"""Shared code of the torchao backends: weights are quantized in place, then inductor compiles."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from harness.backends.shared import inductor
from harness.hardware.installed import why_missing
from harness.program import Compiled, Program

RECOMMENDED: Mapping[str, bool] = MappingProxyType(
    {
        "coordinate_descent_tuning": True,
        "coordinate_descent_check_all_directions": True,
        "force_fuse_int_mm_with_mul": True,
    }
)
"""torchao's settings of inductor. It would set them for the whole process, with TF32 for all products."""


def compile_as(program: Program, name: str, *, config: str) -> Compiled:
    """``torchao.quantization.quantize_`` with this configuration, then ``torch.compile``.

    Raises ``ValueError`` for training, and for a model without linear layers.
    """
    if program.training:
        raise ValueError(f"{name} compiles inference only, because it rounds the weights")
    before = {id(p) for p in program.module.parameters()}
    with _quietly():
        from torchao import quantization

        make_config: Any = getattr(quantization, config)
        quantization.quantize_(program.module, make_config(set_inductor_config=False))
    changed = sum(id(p) not in before for p in program.module.parameters())
    if not changed:
        raise ValueError(f"{name} cannot quantize this model: it has no linear layer")
    compiled = inductor.compile_as(program, name, settings=RECOMMENDED)
    note = f"{name}: {changed} weights quantized"
    return replace(compiled, approximate=True, constant_weights=True, notes=(*compiled.notes, note))


@contextlib.contextmanager
def _quietly() -> Any:
    """Silences torchao's warnings about GPU libraries that this machine cannot load."""
    logger = logging.getLogger("torchao")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)


def why_unavailable(device_type: str) -> str | None:
    return why_missing("torchao", "torchao") or inductor.why_unavailable(device_type)
