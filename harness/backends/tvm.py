"""Apache TVM: the exported model as a Relax program, compiled by TVM's default pipeline. Inference only."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import torch
from torch.utils.dlpack import from_dlpack

from harness.backends.shared import captured
from harness.backends.shared.installed import why_broken, why_missing
from harness.program import Compiled, Program

MODES = captured.INFERENCE
SPINS = "TVM_THREAD_POOL_SPIN_COUNT"


def compile(program: Program) -> Compiled:  # noqa: A001 - the name that every backend offers
    # by default, threads spin 300,000 times, which takes CPU time from the next timed variant
    os.environ.setdefault(SPINS, "1000")
    import tvm
    from tvm import relax
    from tvm.relax.frontend.torch import from_exported_program

    on_cuda = captured.device_of(program).type == "cuda"
    device: Any = tvm.cuda(torch.cuda.current_device()) if on_cuda else tvm.cpu(0)
    target: Any = tvm.target.Target.from_device(device)  # this exact CPU, not its family

    def make(graph: torch.export.ExportedProgram) -> tuple[captured.Flat, int]:
        model = from_exported_program(graph)
        with target:
            machine = relax.VirtualMachine(tvm.compile(model, target=target), device)
        main = machine["main"]

        def run(tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
            results = main(*[tvm.runtime.from_dlpack(tensor.detach().contiguous()) for tensor in tensors])
            return [from_dlpack(result) for result in results]

        return run, len(graph.graph_signature.user_inputs)

    return captured.compile_flat(program, "tvm", make)


def why_unavailable(device_type: str) -> str | None:
    return captured.why_unavailable(device_type) or why_missing("apache-tvm", "tvm") or why_broken("tvm")
