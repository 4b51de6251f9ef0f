"""What the torch.compile backends share."""

from __future__ import annotations

from typing import Any

import torch

from harness.counters import graphs_compiled
from harness.program import Compiled, Program


def compile_with_dynamo(program: Program, backend: str, **options: Any) -> Compiled:
    """``torch.compile`` of forward and loss. The step's backward runs what AOTAutograd made of it."""
    before = graphs_compiled()
    forward = torch.compile(program.forward(), backend=backend, **options)
    return Compiled(
        forward=forward,
        region="forward+loss" if program.training else "forward",
        compiler_calls=lambda: graphs_compiled() - before,
    )
