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
SETTINGS = ("inductor", "mode", "decompose")
PACKAGES = True


def why_unavailable(device_type: str) -> str | None:
    return captured.why_unavailable(device_type) or inductor.why_unavailable(device_type)


def compile(program: Program, package: Path | None = None) -> Compiled:  # noqa: A001 - every backend's name
    """``package``: the file that is loaded or, if it does not exist, written and kept."""
    settings = inductor.all_settings(program)

    def build(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> tuple[captured.Call, int]:
        if package is not None and package.exists():
            return torch._inductor.aoti_load_package(str(package)), 1
        graph = captured.exported(program, program.module, args, kwargs)
        with tempfile.TemporaryDirectory(prefix="torchduet-") as folder:
            file = str(package or Path(folder) / "model.pt2")
            path = torch._inductor.aoti_compile_and_package(
                graph, package_path=file, inductor_configs=settings
            )
            # loading unpacks the file, so it is not needed later
            loaded = torch._inductor.aoti_load_package(path)
        return loaded, captured.operations_of(graph)

    takes = (*captured.TAKES, "inductor_config", "freezing")
    return captured.compile_at_first_call(program, "aot_inductor", build, takes)
