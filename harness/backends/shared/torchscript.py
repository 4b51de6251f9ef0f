"""The TorchScript backends: of the module, and of captured graphs."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, cast

import torch

from harness.backends.shared.contexts import SETTLING_CALLS, around
from harness.backends.shared.dynamo import compile_with_dynamo
from harness.backends.shared.options import DYNAMO, notes_on
from harness.failures import first_line
from harness.program import Compiled, Forward, Program, forward_of


def with_fuser(forward: Forward, program: Program) -> Forward:
    """The forward with the requested fuser. ``RuntimeError`` if this build of torch lacks the fuser.

    The executor reads the setting while it specializes, in the first calls of forward and backward.
    """
    fuser = program.options.fuser
    if fuser is None:
        return forward
    if fuser == "nvfuser":
        raise RuntimeError(
            "PyTorch 2.2 removed NVFuser from TorchScript; the compiler thunder still has it (CUDA)"
        )
    on_cuda = any(p.is_cuda for p in program.module.parameters())
    if not on_cuda and not torch._C._llvm_enabled():
        raise RuntimeError(
            "this torch was built without LLVM, which the fuser NNC needs on a CPU; leave --nnc out"
        )
    return around(forward, lambda: cast("Any", torch.jit).fuser("fuser1"), calls=SETTLING_CALLS)  # NNC


@contextmanager
def quiet() -> Iterator[None]:
    """Silences TorchScript's deprecation warnings, because it is measured on purpose."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def settled(graph: torch.fx.GraphModule) -> torch.fx.GraphModule:
    """The graph as a module with generated code.

    Dynamo's graph modules are lazy: the code of ``forward`` is generated at the first call. Scripting such a
    module before this call fails with "method cannot be used as a value".
    """
    try:
        from torch.fx._lazy_graph_module import _force_skip_lazy_graph_module as not_lazy
    except ImportError:  # before torch 2.3, no graph module is lazy
        return torch.fx.GraphModule(graph, graph.graph)
    with not_lazy():
        return torch.fx.GraphModule(graph, graph.graph)


class OfModule:
    """``torch.jit.script`` of the module, or ``torch.jit.trace`` where scripting fails.

    The loss runs in eager Python, as usual with TorchScript. The executor specializes during the first calls;
    therefore several calls count as compilation.
    """

    @staticmethod
    def compile_as(program: Program, name: str) -> Compiled:
        with quiet():
            scripted, note = _script_or_trace(program)
        nodes = sum(1 for _ in scripted.graph.nodes())
        forward = forward_of(scripted, program.loss if program.training else None)
        return Compiled(
            forward=with_fuser(forward, program),
            region="forward",
            compiler_calls=lambda: int(nodes > 0),
            notes=(note, *notes_on(name, program.options, ("fuser",))),
        )


def _script_or_trace(program: Program) -> tuple[torch.jit.ScriptModule, str]:
    try:
        return torch.jit.script(program.module), "torchscript: scripted"
    except Exception as error:  # scripting raises many types of errors; each leads to tracing
        reason = first_line(error)
    return _trace(program), f"torchscript: traced, because scripting said: {reason}"


def _trace(program: Program) -> torch.jit.ScriptModule:
    trace: Any = torch.jit.trace
    given: dict[str, Any] = {"example_inputs": program.args}
    if program.kwargs:
        # trace takes positional or named inputs, not both, so all are passed by name
        named = inspect.signature(program.module.forward).bind(*program.args, **program.kwargs).arguments
        given = {"example_kwarg_inputs": dict(named)}
    return cast("torch.jit.ScriptModule", trace(program.module, **given, check_trace=False, strict=False))


@dataclass(slots=True)
class GraphScripter:
    """Converts captured graphs to TorchScript, and counts them."""

    name: str
    scripted: int = 0
    traced: int = 0
    reasons: list[str] = field(default_factory=list)

    def script(self, graph: torch.fx.GraphModule, _: Sequence[Any]) -> Callable[..., Any]:
        """Scripts the graph, or traces it at the first call if scripting fails."""
        plain = settled(graph)
        try:
            with quiet():
                scripted = torch.jit.script(plain)
        except Exception as error:  # scripting refuses in many ways: tracing is the answer to all
            self.reasons.append(first_line(error))
            return self._traced_later(plain)
        self.scripted += sum(1 for _ in scripted.graph.nodes()) > 0
        return cast("Callable[..., Any]", scripted)

    def _traced_later(self, graph: torch.fx.GraphModule) -> Callable[..., Any]:
        traced: list[Any] = []

        def run(*inputs: Any) -> Any:
            if not traced:
                with quiet():
                    trace: Any = torch.jit.trace
                    traced.append(trace(graph, inputs, check_trace=False, strict=False))
                self.traced += sum(1 for _ in traced[0].graph.nodes()) > 0
            return traced[0](*inputs)

        return run

    def calls(self) -> int:
        return self.scripted + self.traced

    def notes(self) -> tuple[str, ...]:
        if not self.reasons:
            return (f"{self.name}: {self.scripted} graphs scripted",)
        note = f"{self.name}: {self.scripted} graphs scripted, {self.traced} traced, because scripting said: "
        return (note + self.reasons[0],)


# -- Dynamo's graphs, or AOTAutograd's, with either of its partitioners -----------------


def compile_as(program: Program, name: str, *, partitioner: str) -> Compiled:
    """``partitioner``: of AOTAutograd's joint graph, "default" or "min_cut"; "none": without AOTAutograd."""
    scripter = GraphScripter(name)
    backend = scripter.script if partitioner == "none" else _with_autograd(scripter, partitioner)
    takes = (*(option for option in DYNAMO if option != "whole_step"), "fuser")
    compiled = compile_with_dynamo(program, backend, name=name, takes=takes, calls=scripter.calls)
    return replace(compiled, forward=with_fuser(compiled.forward, program), late_notes=scripter.notes)


def _with_autograd(scripter: GraphScripter, partitioner: str) -> Callable[..., Any]:
    from torch._dynamo.backends.common import aot_autograd
    from torch._functorch.partitioners import min_cut_rematerialization_partition

    def compile_graph(graph: torch.fx.GraphModule, example: Sequence[Any]) -> Callable[..., Any]:
        run = scripter.script(scriptable(graph), example)

        def boxed(inputs: list[Any]) -> Any:
            given = tuple(inputs)
            inputs.clear()  # the caller's list must not keep the inputs alive
            return run(*given)

        boxed._boxed_call = True  # type: ignore[attr-defined]
        return boxed

    min_cut = {"partition_fn": min_cut_rematerialization_partition} if partitioner == "min_cut" else {}
    return aot_autograd(fw_compiler=compile_graph, **min_cut)


def scriptable(graph: torch.fx.GraphModule) -> torch.fx.GraphModule:
    """The graph for TorchScript: operators by name, without overloads; devices as strings."""
    plain = settled(graph)
    for node in plain.graph.nodes:
        if node.target is torch.ops.aten._to_copy.default and set(node.kwargs) == {"dtype"}:
            node.target = torch.ops.aten.to.dtype
            node.args, node.kwargs = (*node.args, node.kwargs["dtype"]), {}
        if isinstance(node.target, torch._ops.OpOverload):
            node.target = node.target.overloadpacket
        node.kwargs = {
            key: str(value) if isinstance(value, torch.device) else value
            for key, value in node.kwargs.items()
        }
    plain.recompile()
    return plain
