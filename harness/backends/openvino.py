"""OpenVINO: the exported model converted whole and compiled for the CPU. Inference only.

``torch.compile(backend="openvino")`` is not used: its import changes Dynamo's configuration for the whole
process, and it passes graphs that it cannot compile to inductor without a message.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from harness.backends.shared import captured
from harness.backends.shared.installed import why_missing
from harness.program import Compiled, Program

MODES = captured.INFERENCE


def compile(program: Program) -> Compiled:  # noqa: A001 - the name that every backend offers
    import openvino

    late: list[str] = []

    def make(graph: torch.export.ExportedProgram) -> tuple[captured.Flat, int]:
        compiled, note = _compiled(openvino, openvino.convert_model(graph), _precision(program))
        late.extend(note)
        request = compiled.create_infer_request()

        def run(tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
            given = {place: _lent(openvino, tensor) for place, tensor in enumerate(tensors)}
            request.infer(given, share_inputs=True)
            return [_taken(openvino, request.get_output_tensor(i)) for i in range(len(compiled.outputs))]

        return run, len(compiled.inputs)

    return captured.compile_flat(program, "openvino", make, late=late)


def _compiled(openvino: Any, model: Any, precision: str | None) -> tuple[Any, tuple[str, ...]]:
    """The model compiled in the requested precision; otherwise in float32, with a note.

    Without a hint, OpenVINO computes in bfloat16 if this is faster, also for a float16 model on a processor
    that cannot compute in float16.
    """
    core, hint = openvino.Core(), "INFERENCE_PRECISION_HINT"
    settings = {"PERFORMANCE_HINT": "LATENCY", "INFERENCE_NUM_THREADS": str(torch.get_num_threads())}
    if precision is None:
        return core.compile_model(model, "CPU", settings), ()
    compiled = core.compile_model(model, "CPU", {**settings, hint: precision})
    if compiled.get_property(hint).get_type_name() == precision:
        return compiled, ()
    note = f"openvino: computed in float32, because this processor does not compute in {precision}"
    return core.compile_model(model, "CPU", {**settings, hint: "f32"}), (note,)


def _precision(program: Program) -> str | None:
    """The precision of the weights. None under autocast, which mixes precisions."""
    if torch.is_autocast_enabled("cpu"):
        return None
    names = {torch.float32: "f32", torch.float16: "f16", torch.bfloat16: "bf16"}
    floats = {p.dtype for p in program.module.parameters() if p.is_floating_point()}
    return names.get(floats.pop()) if len(floats) == 1 else "f32"


def _lent(openvino: Any, tensor: torch.Tensor) -> Any:
    """An OpenVINO tensor that shares the tensor's memory."""
    tensor = tensor.detach().contiguous()
    if tensor.dtype is torch.bfloat16:  # numpy has no bfloat16
        return openvino.Tensor(tensor.view(torch.int16).numpy(), list(tensor.shape), openvino.Type.bf16)
    return openvino.Tensor(tensor.numpy(), shared_memory=True)


def _taken(openvino: Any, result: Any) -> torch.Tensor:
    """A copy of the result, because the next call overwrites the original."""
    if result.element_type == openvino.Type.bf16:
        return torch.from_numpy(result.data.view("int16")).view(torch.bfloat16).clone()
    return torch.from_numpy(result.data).clone()


def why_unavailable(device_type: str) -> str | None:
    if device_type != "cpu":
        return "OpenVINO compiles for the CPU here"
    return captured.why_unavailable(device_type) or why_missing("openvino", "openvino")
