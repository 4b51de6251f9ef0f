"""TensorRT through torch_tensorrt's torch.compile backend."""

from __future__ import annotations

import importlib
from dataclasses import replace

import torch

from harness.backends.shared.dynamo import compile_with_dynamo
from harness.hardware.installed import why_broken, why_missing
from harness.program import Compiled, Program

MODES = ("inference",)
DEVICES = ("cuda",)
NEEDS = "torch-tensorrt"


def compile(program: Program) -> Compiled:  # noqa: A001 - the name that every backend offers
    if program.training:
        raise ValueError("tensorrt compiles inference only: it has no backward")
    importlib.import_module("torch_tensorrt")  # registers the backend
    # pass_through_build_failures: without it, a graph that TensorRT rejects silently runs in eager
    options = {
        "pass_through_build_failures": True,
        "use_python_runtime": False,
        "disable_tf32": not torch.backends.cuda.matmul.allow_tf32,
    }
    compiled = compile_with_dynamo(program, "torch_tensorrt", name="tensorrt", options=options)
    return replace(compiled, constant_weights=True)


def why_unavailable(device_type: str) -> str | None:
    if device_type not in DEVICES:
        return "TensorRT needs a CUDA device"
    return why_missing(NEEDS, "torch_tensorrt") or why_broken("torch_tensorrt")
