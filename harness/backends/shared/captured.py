"""The backends that compile a whole model captured by ``torch.export``. Inference only.

The model is captured at the candidate's first call: autocast is then active, and the buffers have their
initial values. Each class is a row of ``presets.toml`` and has the names of a compiler's file.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import torch
from torch import nn
from torch.utils import _pytree as pytree
from torch.utils.dlpack import from_dlpack

from harness.backends.shared import inductor
from harness.backends.shared.options import device_of, notes_on
from harness.devices import Device, of
from harness.hardware.installed import why_broken, why_missing
from harness.program import Compiled, Program, forward_of
from harness.tensors import named_tensors

Call = Callable[..., Any]
Flat = Callable[[Sequence[torch.Tensor]], Sequence[torch.Tensor]]
TAKES = ("dynamic_shapes", "dynamic_batch")


def why_not_captured() -> str | None:
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


# -- the compilers -----------------------------------------------------------------------------


class Export:
    """torch.export: the graph of ATen operators, run by eager kernels."""

    @staticmethod
    def why_unavailable(device_type: str) -> str | None:  # noqa: ARG004 - the same for all
        return why_not_captured()

    @staticmethod
    def compile_as(program: Program, name: str) -> Compiled:
        def build(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> tuple[Call, int]:
            graph = exported(program, program.module, args, kwargs)
            return graph.module(), operations_of(graph)

        return compile_at_first_call(program, name, build)


class AOTInductor(Export):
    """inductor, packed as a library that runs without Python."""

    SETTINGS = ("inductor", "mode", "decompose")
    PACKAGES = True

    @staticmethod
    def why_unavailable(device_type: str) -> str | None:
        return why_not_captured() or inductor.why_unavailable(device_type)

    @staticmethod
    def compile_as(program: Program, name: str, package: Path | None = None) -> Compiled:
        """``package``: the file that is loaded or, if it does not exist, written and kept."""
        settings = inductor.all_settings(program)

        def build(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> tuple[Call, int]:
            if package is not None and package.exists():
                return torch._inductor.aoti_load_package(str(package)), 1
            graph = exported(program, program.module, args, kwargs)
            with tempfile.TemporaryDirectory(prefix="torchduet-") as folder:
                file = str(package or Path(folder) / "model.pt2")
                path = torch._inductor.aoti_compile_and_package(
                    graph, package_path=file, inductor_configs=settings
                )
                # loading unpacks the file, so it is not needed later
                loaded = torch._inductor.aoti_load_package(path)
            return loaded, operations_of(graph)

        return compile_at_first_call(program, name, build, (*TAKES, "inductor_config", "freezing"))


class OnnxRuntime(Export):
    """An InferenceSession of ONNX Runtime."""

    PROVIDERS: Mapping[str, str] = {"cpu": "CPUExecutionProvider", "cuda": "CUDAExecutionProvider"}

    @classmethod
    def compile_as(cls, program: Program, name: str) -> Compiled:
        import onnxruntime

        device = of(device_of(program))
        provider = cls.PROVIDERS[device.type]

        def make(graph: torch.export.ExportedProgram) -> tuple[Flat, int]:
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
                session = cls._session(path, options, provider, device)
            names = [given.name for given in session.get_inputs()]
            wanted = [result.name for result in session.get_outputs()]
            value = onnxruntime.OrtValue

            def run(tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
                binding = session.io_binding()
                for place, tensor in zip(names, tensors, strict=True):
                    binding.bind_ortvalue_input(place, value.from_dlpack(tensor.detach().contiguous()))
                for place in wanted:  # without a binding, ONNX Runtime copies outputs to the CPU
                    binding.bind_output(place, device.type, device.index or 0)
                device.synchronize()  # ONNX Runtime works in its own stream, and waits for it at the end
                session.run_with_iobinding(binding)
                return [from_dlpack(result) for result in binding.get_outputs()]

            return run, len(names)

        return compile_flat(program, name, make)

    @staticmethod
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

    @classmethod
    def why_unavailable(cls, device_type: str) -> str | None:
        install = f"onnxruntime{'-gpu' if device_type == 'cuda' else ''} onnx onnxscript"
        if why := why_not_captured() or why_missing(install, "onnxruntime", "onnx", "onnxscript"):
            return why
        import onnxruntime

        if cls.PROVIDERS.get(device_type) in onnxruntime.get_available_providers():
            return None
        return f"this ONNX Runtime has no provider for {device_type} (pip install onnxruntime-gpu for cuda)"


class OpenVino(Export):
    """The exported model converted whole and compiled for the CPU.

    ``torch.compile(backend="openvino")`` is not used: its import changes Dynamo's configuration for the whole
    process, and it passes graphs that it cannot compile to inductor without a message.
    """

    @classmethod
    def compile_as(cls, program: Program, name: str) -> Compiled:
        import openvino

        late: list[str] = []

        def make(graph: torch.export.ExportedProgram) -> tuple[Flat, int]:
            compiled, note = cls._compiled(openvino, openvino.convert_model(graph), cls._precision(program))
            late.extend(note)
            request = compiled.create_infer_request()

            def run(tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
                given = {place: cls._lent(openvino, tensor) for place, tensor in enumerate(tensors)}
                request.infer(given, share_inputs=True)
                results = (request.get_output_tensor(i) for i in range(len(compiled.outputs)))
                return [cls._taken(openvino, result) for result in results]

            return run, len(compiled.inputs)

        return compile_flat(program, name, make, late=late)

    @staticmethod
    def _compiled(openvino: Any, model: Any, precision: str | None) -> tuple[Any, tuple[str, ...]]:
        """The model compiled in the requested precision; otherwise in float32, with a note.

        Without a hint, OpenVINO computes in bfloat16 if this is faster, also for a float16 model on a
        processor that cannot compute in float16.
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

    @staticmethod
    def _precision(program: Program) -> str | None:
        """The precision of the weights. None under autocast, which mixes precisions."""
        if torch.is_autocast_enabled("cpu"):
            return None
        names = {torch.float32: "f32", torch.float16: "f16", torch.bfloat16: "bf16"}
        floats = {p.dtype for p in program.module.parameters() if p.is_floating_point()}
        return names.get(floats.pop()) if len(floats) == 1 else "f32"

    @staticmethod
    def _lent(openvino: Any, tensor: torch.Tensor) -> Any:
        """An OpenVINO tensor that shares the tensor's memory."""
        tensor = tensor.detach().contiguous()
        if tensor.dtype is torch.bfloat16:  # numpy has no bfloat16
            return openvino.Tensor(tensor.view(torch.int16).numpy(), list(tensor.shape), openvino.Type.bf16)
        return openvino.Tensor(tensor.numpy(), shared_memory=True)

    @staticmethod
    def _taken(openvino: Any, result: Any) -> torch.Tensor:
        """A copy of the result, because the next call overwrites the original."""
        if result.element_type == openvino.Type.bf16:
            return torch.from_numpy(result.data.view("int16")).view(torch.bfloat16).clone()
        return torch.from_numpy(result.data).clone()

    @staticmethod
    def why_unavailable(device_type: str) -> str | None:
        if device_type != "cpu":
            return "OpenVINO compiles for the CPU here"
        return why_not_captured() or why_missing("openvino", "openvino")


class Tvm(Export):
    """Apache TVM: a Relax program, compiled by TVM's default pipeline."""

    @staticmethod
    def compile_as(program: Program, name: str) -> Compiled:
        # by default, threads spin 300,000 times, which takes CPU time from the next timed variant
        os.environ.setdefault("TVM_THREAD_POOL_SPIN_COUNT", "1000")
        import tvm
        from tvm import relax
        from tvm.relax.frontend.torch import from_exported_program

        on_cuda = device_of(program).type == "cuda"
        device: Any = tvm.cuda(torch.cuda.current_device()) if on_cuda else tvm.cpu(0)
        target: Any = tvm.target.Target.from_device(device)  # this exact CPU, not its family

        def make(graph: torch.export.ExportedProgram) -> tuple[Flat, int]:
            model = from_exported_program(graph)
            with target:
                machine = relax.VirtualMachine(tvm.compile(model, target=target), device)
            main = machine["main"]

            def run(tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
                results = main(*[tvm.runtime.from_dlpack(tensor.detach().contiguous()) for tensor in tensors])
                return [from_dlpack(result) for result in results]

            return run, len(graph.graph_signature.user_inputs)

        return compile_flat(program, name, make)

    @staticmethod
    def why_unavailable(device_type: str) -> str | None:  # noqa: ARG004 - the same for all
        return why_not_captured() or why_missing("apache-tvm", "tvm") or why_broken("tvm")
