"""What the backends share that end in inductor."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch

from harness.backends._around import FIRST_CALLS, around
from harness.backends._dynamo import compile_with_dynamo
from harness.backends._options import DYNAMO, inductor_settings
from harness.program import Compiled, Program

TAKES = (*DYNAMO, "inductor_config", "freezing")


def compile_with_inductor(
    program: Program, name: str, *, mode: str | None = None, settings: Mapping[str, Any] | None = None
) -> Compiled:
    """inductor in one of its modes, with these settings and, over them, those that a person asked for."""
    asked = all_settings(program, mode, settings)
    takes = TAKES if not program.training else (*DYNAMO, "inductor_config")
    options: dict[str, Any] = {"options": asked} if asked else {}
    compiled = compile_with_dynamo(program, "inductor", name=name, takes=takes, **options)
    return with_freezing(compiled, asked)


def with_freezing(compiled: Compiled, settings: Mapping[str, Any]) -> Compiled:
    """Dynamo, too, has to know that weights are to be constants, and looks at the configuration itself."""
    if not settings.get("freezing"):
        return compiled

    def context() -> Any:
        return torch._inductor.config.patch(freezing=True)

    return replace(compiled, forward=around(compiled.forward, context, calls=FIRST_CALLS))


def all_settings(
    program: Program, mode: str | None = None, settings: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """inductor's settings for this candidate. ``ValueError`` for one that it does not know."""
    found: dict[str, Any] = {}
    if mode:
        from torch._inductor import list_mode_options  # torch 2.0 has none, and no other modes

        found.update(list_mode_options(mode))
    found.update(settings or {})
    if program.options.freezing and not program.training:
        found["freezing"] = True
    found.update(inductor_settings(program.options.inductor_config))
    return found


def why_no_inductor(device_type: str) -> str | None:
    """inductor writes C++ for a CPU and Triton's language for CUDA: each needs its compiler."""
    if device_type == "cpu":
        compilers = [os.environ.get("CXX", ""), "g++", "clang++", "c++"]
        if not any(name and shutil.which(name.split()[0]) for name in compilers):
            return "inductor needs a C++ compiler (g++ or clang++, or one named by CXX) and finds none"
        return None
    from torch.utils._triton import has_triton

    return None if has_triton() else "inductor needs Triton and a GPU that it supports (pip install triton)"


def why_no_cudagraphs(device_type: str) -> str | None:
    return None if device_type == "cuda" else "CUDA graphs need a CUDA device"


def note_on_cpu(program: Program, name: str) -> tuple[str, ...]:
    """Of a mode that is about CUDA graphs: what it is worth without CUDA."""
    on_cuda = any(p.is_cuda for p in program.module.parameters())
    return (
        ()
        if on_cuda
        else (f"{name}: without CUDA there are no CUDA graphs, and this is the mode without them",)
    )
