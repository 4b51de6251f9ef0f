"""What the torchao backends share: weights quantised in place, then inductor."""

from __future__ import annotations

import contextlib
import logging
from dataclasses import replace
from typing import Any

from harness.backends._inductor import compile_with_inductor, why_no_inductor
from harness.backends._installed import why_missing
from harness.program import Compiled, Program


def compile_quantised(program: Program, name: str, config_name: str) -> Compiled:
    """``torchao.quantization.quantize_`` with that configuration, then ``torch.compile``.

    ``ValueError`` for a program that trains, or a model without linear layers.
    """
    if program.training:
        raise ValueError(f"{name} compiles inference only: it rounds the weights")
    before = {id(p) for p in program.module.parameters()}
    with _quietly():
        from torchao import quantization

        config: Any = getattr(quantization, config_name)
        quantization.quantize_(program.module, config())
    changed = sum(id(p) not in before for p in program.module.parameters())
    if not changed:
        raise ValueError(f"{name} found nothing to quantise: this model has no linear layer")
    compiled = compile_with_inductor(program, name)
    note = f"{name}: {changed} weights quantised; what differs from eager is measured, not judged"
    return replace(compiled, approximate=True, notes=(*compiled.notes, note))


@contextlib.contextmanager
def _quietly() -> Any:
    """Without torchao's complaints about GPU libraries that this machine cannot load."""
    logger = logging.getLogger("torchao")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)


def why_no_torchao(device_type: str) -> str | None:
    return why_missing("torchao", "torchao") or why_no_inductor(device_type)
