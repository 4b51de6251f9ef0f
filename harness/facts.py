"""What was really built: the size of the model and of its inputs."""

from __future__ import annotations

from harness.program import Program
from harness.schema import ModelFacts
from harness.tensors import named_tensors


def facts_of(program: Program, batch_size: int | None) -> ModelFacts:
    """Parameters are counted once each, however often they are used."""
    parameters = list(program.module.parameters())
    shapes = [
        f"{name}: {str(tensor.dtype).removeprefix('torch.')}{list(tensor.shape)}"
        for name, tensor in named_tensors((program.args, program.kwargs), "input")
    ]
    return ModelFacts(
        parameters=sum(p.numel() for p in parameters),
        parameter_bytes=sum(p.numel() * p.element_size() for p in parameters),
        input_shapes=tuple(shapes),
        batch_size=batch_size,
    )
