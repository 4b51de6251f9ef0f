"""Shared code of the backends that compile a whole model captured by ``torch.export``. Inference only.

The model is captured at the candidate's first call: autocast is then active, and the buffers have their
initial values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import torch
from torch import nn
from torch.utils import _pytree as pytree

from harness.backends.shared.options import notes_on
from harness.program import Compiled, Program, forward_of
from harness.tensors import named_tensors

Call = Callable[..., Any]
Flat = Callable[[Sequence[torch.Tensor]], Sequence[torch.Tensor]]
INFERENCE = ("inference",)
TAKES = ("dynamic_shapes", "dynamic_batch")


def why_unavailable(device_type: str) -> str | None:
    """Why no model can be captured on any device: torch is too old."""
    if hasattr(getattr(getattr(torch, "export", None), "Dim", None), "AUTO"):
        return None
    return f"the capture by torch.export needs torch 2.6 or later; this is torch {torch.__version__}"


def compile_at_first_call(
    program: Program,
    name: str,
    build: Callable[[tuple[Any, ...], Mapping[str, Any]], tuple[Call, int]],
    takes: Iterable[str] = TAKES,
    *,
    late: Sequence[str] = (),
) -> Compiled:
    """``build(args, kwargs)`` returns the compiled callable and its number of operations.

    ``build`` may append notes to ``late``. ``ValueError`` for training: these compilers have no backward.
    """
    if program.training:
        raise ValueError(f"{name} compiles inference only: it has no backward")
    run: Call | None = None
    operations = 0

    def call(*args: Any, **kwargs: Any) -> Any:
        nonlocal run, operations
        if run is None:
            run, operations = build(args, kwargs)
        return run(*args, **kwargs)

    return Compiled(
        forward=forward_of(call, None),
        region="forward",
        compiler_calls=lambda: int(operations > 0),
        constant_weights=True,
        notes=notes_on(name, program.options, takes),
        late_notes=lambda: tuple(late),
    )


def compile_flat(
    program: Program,
    name: str,
    make: Callable[[torch.export.ExportedProgram], tuple[Flat, int]],
    *,
    late: Sequence[str] = (),
) -> Compiled:
    """``make`` compiles the capture of a module that takes and returns flat tensors.

    It returns what runs, and how many tensors that takes.
    """

    def build(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> tuple[Call, int]:
        flat = FlatModule(program.module, args, kwargs, free=has_free_sizes(program))
        graph = exported(program, flat, flat.tensors)
        return flat.around(*make(graph)), operations_of(graph)

    return compile_at_first_call(program, name, build, late=late)


def exported(
    program: Program, module: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any] | None = None
) -> torch.export.ExportedProgram:
    """``torch.export`` of the module for these inputs, with the requested dynamic sizes."""
    given = dict(kwargs or {})
    shapes: Any = cast("Any", torch.export.ShapesCollection)()
    free = torch.export.Dim.AUTO
    options = program.options
    inputs = [tensor for _, tensor in named_tensors((args, given), "input") if tensor.dim()]
    for tensor in inputs:
        if options.dynamic_shapes:
            shapes[tensor] = dict.fromkeys(range(tensor.dim()), free)
        elif options.dynamic_batch and tensor.shape[0] == inputs[0].shape[0]:
            shapes[tensor] = {0: free}
    wanted = shapes if has_free_sizes(program) else None
    return torch.export.export(module, args, given, dynamic_shapes=wanted, strict=False)


def has_free_sizes(program: Program) -> bool:
    """Whether one capture serves inputs of several sizes."""
    return program.options.dynamic_shapes or program.options.dynamic_batch


def operations_of(captured: torch.export.ExportedProgram) -> int:
    return sum(node.op == "call_function" for node in captured.graph.nodes)


@dataclass(slots=True)
class Shape:
    """The structure of inputs or outputs: the places of tensors, and all other values."""

    spec: Any = None
    leaves: list[Any] = field(default_factory=list)  # the class torch.Tensor in the place of a tensor

    def take(self, value: Any, what: str) -> list[torch.Tensor]:
        """Stores the structure of ``value`` and returns its tensors, in order."""
        leaves, self.spec = pytree.tree_flatten(value)
        self.leaves = [torch.Tensor if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves]
        for leaf in self.leaves:
            if next(iter(named_tensors(leaf, what)), None) is not None:
                raise TypeError(
                    f"this model's {what} has tensors in a {type(leaf).__name__}, which cannot cross over"
                )
        return [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]

    def put(self, tensors: Iterable[torch.Tensor]) -> Any:
        """The stored structure with these tensors."""
        source = iter(tensors)
        leaves = [next(source) if leaf is torch.Tensor else leaf for leaf in self.leaves]
        return pytree.tree_unflatten(leaves, self.spec)


class FlatModule(nn.Module):
    """A module that takes and returns flat tuples of tensors, as other runtimes need.

    ``free``: inputs may have other sizes than these.
    """

    def __init__(
        self, module: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any], *, free: bool = False
    ) -> None:
        super().__init__()
        self.inner = module
        self._free = free
        self._inputs = Shape()
        self._outputs = Shape()
        self.tensors = tuple(self._inputs.take((args, dict(kwargs)), "input"))
        self.train(module.training)

    def forward(self, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        args, kwargs = self._inputs.put(tensors)
        return tuple(self._outputs.take(self.inner(*args, **kwargs), "output"))

    def around(self, run: Flat, takes: int) -> Call:
        """Gives ``run``, which takes ``takes`` flat tensors and returns flat ones, the module's signature."""
        if takes != len(self.tensors):
            raise RuntimeError(f"the compiled model takes {takes} inputs, the model {len(self.tensors)}")
        outputs = self._outputs

        def form(tensor: torch.Tensor) -> object:
            return tensor.dim() if self._free else tensor.shape, tensor.dtype

        expected = [form(tensor) for tensor in self.tensors]

        def call(*args: Any, **kwargs: Any) -> Any:
            tensors = [t for t in pytree.tree_flatten((args, kwargs))[0] if isinstance(t, torch.Tensor)]
            if [form(tensor) for tensor in tensors] != expected:
                raise ValueError("this model was captured for inputs of other sizes")
            return outputs.put(run(tensors))

        return call


def device_of(program: Program) -> torch.device:
    """The device of the weights or, without weights, of the inputs."""
    named = named_tensors((program.args, dict(program.kwargs)), "input")
    tensors = [*program.module.parameters(), *(tensor for _, tensor in named)]
    return tensors[0].device if tensors else torch.device("cpu")
