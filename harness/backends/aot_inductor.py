"""AOTInductor: torch.export, then inductor, packed as a library that runs without Python. Inference only."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from harness.backends.shared.captured import (
    INFERENCE,
    TAKES,
    Call,
    compile_at_first_call,
    exported,
    operations_of,
)
from harness.backends.shared.inductor import all_settings, why_no_inductor
from harness.program import Compiled, Program

MODES = INFERENCE
why_unavailable = why_no_inductor


def compile(program: Program) -> Compiled:  # noqa: A001 - the name that every backend offers
    settings = all_settings(program)

    def build(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> tuple[Call, int]:
        captured = exported(program, program.module, args, kwargs)
        with tempfile.TemporaryDirectory(prefix="torchduet-") as folder:
            package = str(Path(folder) / "model.pt2")
            path = torch._inductor.aoti_compile_and_package(
                captured, package_path=package, inductor_configs=settings
            )
            # loading unpacks the file, so it is not needed later
            loaded = torch._inductor.aoti_load_package(path)
        return loaded, operations_of(captured)

    takes = (*TAKES, "inductor_config", "freezing")
    return compile_at_first_call(program, "aot_inductor", build, takes)
