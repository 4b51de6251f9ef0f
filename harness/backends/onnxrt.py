"""ONNX Runtime: the model exported to ONNX and run by an InferenceSession. Inference only."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch.utils.dlpack import from_dlpack

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
        # its threads spin for the next call, which takes the processors from whoever is timed next
        options.add_session_config_entry("session.force_spinning_stop", "1")
        with tempfile.TemporaryDirectory(prefix="torchduet-") as folder:
            path = str(Path(folder) / "model.onnx")
            model.save(
                path, external_data=True
            )  # a file of its own for weights: one may hold no more than 2 GB
            session = _session(path, options, provider)
        names = [given.name for given in session.get_inputs()]
        wanted = [made.name for made in session.get_outputs()]
        if len(names) != len(flat.tensors):
            raise RuntimeError(f"the ONNX model takes {len(names)} inputs, the model {len(flat.tensors)}")
        value = onnxruntime.OrtValue

        def run(tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
            feed = {n: value.from_dlpack(t.contiguous()) for n, t in zip(names, tensors, strict=True)}
            return [from_dlpack(made) for made in session.run_with_ort_values(wanted, feed)]

        return flat.around(run), operations_of(captured)

    return compile_at_first_call(program, "onnxrt", build)


def _session(path: str, options: Any, provider: str) -> Any:
    """``RuntimeError`` where its kernels are of no use for this model, or not to be had."""
    import onnxruntime

    try:
        session = onnxruntime.InferenceSession(path, options, providers=[provider])
    except onnxruntime.capi.onnxruntime_pybind11_state.NotImplemented as error:
        # on a CPU, bfloat16 has hardly any
        raise RuntimeError(
            f"ONNX Runtime lacks a kernel that this model needs at this precision: {error}"
        ) from error
    if session.get_providers()[0] != provider:
        raise RuntimeError(f"ONNX Runtime could not use its {provider}")
    return session


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
