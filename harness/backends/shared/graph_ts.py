"""TorchScript on captured graphs: Dynamo's, or AOTAutograd's, with either of its partitioners."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch

from harness.backends.shared.dynamo import compile_with_dynamo
from harness.backends.shared.options import DYNAMO
from harness.backends.shared.torchscript import GraphScripter, settled, with_fuser
from harness.program import Compiled, Program


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
