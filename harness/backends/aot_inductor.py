"""AOTInductor: torch.export, then inductor, packed as a library that runs without Python. Inference only."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from harness.backends.shared import captured, inductor
from harness.program import Compiled, Program

MODES = captured.INFERENCE
why_unavailable = inductor.why_unavailable
SETTINGS = ("inductor", "mode", "decompose")


def compile(program: Program) -> Compiled:  # noqa: A001 - the name that every backend offers
    settings = inductor.all_settings(program)

    def build(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> tuple[captured.Call, int]:
        graph = captured.exported(program, program.module, args, kwargs)
        with tempfile.TemporaryDirectory(prefix="torchduet-") as folder:
            package = str(Path(folder) / "model.pt2")
            path = torch._inductor.aoti_compile_and_package(
                graph, package_path=package, inductor_configs=settings
            )
            # loading unpacks the file, so it is not needed later
            loaded = torch._inductor.aoti_load_package(path)
        return loaded, captured.operations_of(graph)

    takes = (*captured.TAKES, "inductor_config", "freezing")
    return captured.compile_at_first_call(program, "aot_inductor", build, takes)
