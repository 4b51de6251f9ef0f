"""Another process, whose kernels use no vector instructions beyond SSE, runs the steps of a variant."""

from __future__ import annotations

import multiprocessing
import os
import pickle
from collections.abc import Iterator
from functools import cache
from multiprocessing.connection import Connection
from typing import Any
from unittest.mock import patch

import torch
from torch.utils._pytree import tree_map_only

from harness.schema import Job
from harness.timing.step import Variant
from harness.timing.workbench import Workbench
from harness.worker.opening import Opening

NARROW = {
    "ATEN_CPU_CAPABILITY": "default",
    "ONEDNN_MAX_CPU_ISA": "SSE41",
    "MKL_CBWR": "COMPATIBLE",
}
"""Read when the first kernel of each library runs."""


def narrow_instructions(variant: Variant, job: Job) -> bool:
    """From now on the steps of the variant run in the other process, on its weights, buffers and inputs."""
    pipe = _other_process()
    _ask(pipe, (job, variant.program.loss_scale))

    def step(*_: Any) -> tuple[Any, Any]:
        given = {name: tensor.detach() for name, tensor in _tensors(variant)}
        loss, output, after, gradients = _ask(pipe, (torch.get_rng_state(), given))
        with torch.no_grad():
            for name, tensor in _tensors(variant):
                tensor.copy_(after[name])
        for name, tensor in _leaves(variant):
            tensor.grad = gradients.get(name)
        return loss, output

    variant.use(step, lambda _: step)
    return True


def _tensors(variant: Variant) -> Iterator[tuple[str, torch.Tensor]]:
    yield from variant.state()
    yield from ((f"buffer.{name}", buffer) for name, buffer in variant.program.module.named_buffers())


def _leaves(variant: Variant) -> Iterator[tuple[str, torch.Tensor]]:
    """What has a gradient. (``state`` has the data of weights.)"""
    yield from variant.program.module.named_parameters()
    yield from ((name, tensor) for name, tensor in variant.state() if name.startswith("input"))


def _ask(pipe: Connection, question: object) -> Any:
    """The answer. ``RuntimeError`` with the words of an error there."""
    pipe.send_bytes(pickle.dumps(question))
    problem, answer = pickle.loads(pipe.recv_bytes())  # noqa: S301 - of our own process
    if problem:
        raise RuntimeError(f"with narrow instructions: {problem}")
    return answer


@cache
def _other_process() -> Connection:
    """It ends with this process."""
    spawning = multiprocessing.get_context("spawn")
    ours, theirs = spawning.Pipe()
    with patch.dict(os.environ, NARROW):
        spawning.Process(target=_serve, args=(theirs,), daemon=True).start()
    theirs.close()
    return ours


def _serve(pipe: Connection) -> None:
    torch.set_num_threads(1)
    if torch.backends.cpu.get_cpu_capability() != "DEFAULT":
        raise RuntimeError("this torch does not read ATEN_CPU_CAPABILITY")
    variant: Variant | None = None
    while True:
        try:
            question = pickle.loads(pipe.recv_bytes())  # noqa: S301 - of the process that began this one
        except EOFError:
            return
        problem, answer = "", None
        try:
            if isinstance(question[0], Job):
                variant = None  # before the next model is built
                variant = _opened(*question)
            else:
                assert variant is not None
                answer = _step(variant, *question)
        except Exception as error:  # the other models can run
            problem = f"{type(error).__name__}: {error}"
        pipe.send_bytes(pickle.dumps((problem, answer)))


def _opened(job: Job, loss_scale: float) -> Variant:
    device = torch.device(job.device)
    bench = Workbench(job, device, Opening(job, device, lambda _: None, None).build())
    bench.loss_scale = loss_scale
    return bench.variant()


def _step(variant: Variant, random: torch.Tensor, given: dict[str, torch.Tensor]) -> tuple[Any, ...]:
    """Loss, output, the tensors afterwards, and the gradients."""
    with torch.no_grad():
        for name, tensor in _tensors(variant):
            tensor.copy_(given[name])
    variant.release()
    torch.set_rng_state(random)
    loss, output = tree_map_only(torch.Tensor, torch.Tensor.detach, variant.step())
    gradients = {name: tensor.grad for name, tensor in _leaves(variant) if tensor.grad is not None}
    return loss, output, {name: tensor.detach() for name, tensor in _tensors(variant)}, gradients
