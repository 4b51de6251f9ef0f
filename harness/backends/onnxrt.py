"""ONNX Runtime: the model exported to ONNX and run by an InferenceSession. Inference only."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch.utils.dlpack import from_dlpack

from harness.backends.shared import captured
from harness.backends.shared.installed import why_missing
from harness.devices import Device, of
from harness.program import Compiled, Program

MODES = captured.INFERENCE
PROVIDERS = {"cpu": "CPUExecutionProvider", "cuda": "CUDAExecutionProvider"}


def compile(program: Program) -> Compiled:  # noqa: A001 - the name that every backend offers
    import onnxruntime

    device = of(captured.device_of(program))
    provider = PROVIDERS[device.type]

    def make(graph: torch.export.ExportedProgram) -> tuple[captured.Flat, int]:
        model = torch.onnx.export(graph, dynamo=True, verbose=False)
        assert model is not None
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = torch.get_num_threads()  # as many as eager has
        options.log_severity_level = 3
        # spinning threads would take CPU time from the next timed variant
        options.add_session_config_entry("session.force_spinning_stop", "1")
        with tempfile.TemporaryDirectory(prefix="torchduet-") as folder:
            path = str(Path(folder) / "model.onnx")
            model.save(path, external_data=True)  # weights apart, because one file holds at most 2 GB
            session = _session(path, options, provider, device)
        names = [given.name for given in session.get_inputs()]
        wanted = [result.name for result in session.get_outputs()]
        value = onnxruntime.OrtValue

        def run(tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
            binding = session.io_binding()
            for name, tensor in zip(names, tensors, strict=True):
                binding.bind_ortvalue_input(name, value.from_dlpack(tensor.detach().contiguous()))
            for name in wanted:  # without a binding, ONNX Runtime copies outputs to the CPU
                binding.bind_output(name, device.type, device.index or 0)
            device.synchronize()  # ONNX Runtime works in a stream of its own, and waits for it at the end
            session.run_with_iobinding(binding)
            return [from_dlpack(result) for result in binding.get_outputs()]

        return run, len(names)

    return captured.compile_flat(program, "onnxrt", make)


def _session(path: str, options: Any, provider: str, device: Device) -> Any:
    """Raises ``RuntimeError`` if its kernels are missing or do not support this model."""
    import onnxruntime

    try:
        place = {"device_id": str(device.index or 0)} if device.numbered else {}
        if device.has_tf32:  # ONNX Runtime uses TF32 by default
            place["use_tf32"] = str(int(torch.backends.cuda.matmul.allow_tf32))
        session = onnxruntime.InferenceSession(path, options, providers=[(provider, place)])
    except onnxruntime.capi.onnxruntime_pybind11_state.NotImplemented as error:
        # few CPU kernels support bfloat16
        raise RuntimeError(
            f"ONNX Runtime lacks a kernel that this model needs at this precision: {error}"
        ) from error
    if session.get_providers()[0] != provider:
        raise RuntimeError(f"ONNX Runtime could not use its {provider}")
    return session


def why_unavailable(device_type: str) -> str | None:
    install = "onnxruntime-gpu onnx onnxscript" if device_type == "cuda" else "onnxruntime onnx onnxscript"
    why = captured.why_unavailable(device_type) or why_missing(install, "onnxruntime", "onnx", "onnxscript")
    if why is not None:
        return why
    import onnxruntime

    provider = PROVIDERS.get(device_type)
    if provider in onnxruntime.get_available_providers():
        return None
    return f"this ONNX Runtime has no provider for {device_type} (pip install onnxruntime-gpu for cuda)"
