"""ONNX Runtime: the model exported to ONNX and run by an InferenceSession. Inference only."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from harness.backends._captured import (
    INFERENCE,
    Call,
    compile_at_first_call,
    device_type_of,
    flat_export,
    operations_of,
)
from harness.backends._installed import why_missing
from harness.program import Compiled, Program

MODES = INFERENCE
PROVIDERS = {"cpu": "CPUExecutionProvider", "cuda": "CUDAExecutionProvider"}


def compile(program: Program) -> Compiled:  # noqa: A001 - the name that every backend offers
    import onnxruntime

    provider = PROVIDERS[device_type_of(program)]

    def build(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> tuple[Call, int]:
        flat, captured = flat_export(program, args, kwargs)
        model = torch.onnx.export(captured, dynamo=True, verbose=False)
        assert model is not None
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = torch.get_num_threads()  # as many as eager has
        options.log_severity_level = 3
        packed = io.BytesIO()
        model.save(packed)
        session = onnxruntime.InferenceSession(packed.getvalue(), options, providers=[provider])
        if session.get_providers()[0] != provider:
            raise RuntimeError(f"ONNX Runtime could not use its {provider}")
        names = [given.name for given in session.get_inputs()]
        wanted = [made.name for made in session.get_outputs()]
        if len(names) != len(flat.tensors):
            raise RuntimeError(f"the ONNX model takes {len(names)} inputs, the model {len(flat.tensors)}")
        value = onnxruntime.OrtValue

        def run(tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
            feed = {n: value.from_dlpack(t.contiguous()) for n, t in zip(names, tensors, strict=True)}
            return [torch.from_dlpack(made) for made in session.run_with_ort_values(wanted, feed)]

        return flat.around(run), operations_of(captured)

    return compile_at_first_call(program, "onnxrt", build)


def why_unavailable(device_type: str) -> str | None:
    install = "onnxruntime-gpu onnx onnxscript" if device_type == "cuda" else "onnxruntime onnx onnxscript"
    why = why_missing(install, "onnxruntime", "onnx", "onnxscript")
    if why is not None:
        return why
    import onnxruntime

    provider = PROVIDERS.get(device_type)
    if provider in onnxruntime.get_available_providers():
        return None
    return f"this ONNX Runtime has no provider for {device_type} (pip install onnxruntime-gpu for cuda)"
