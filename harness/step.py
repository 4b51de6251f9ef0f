"""One step of a variant, and what it leaves behind to compare."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any

import torch

from harness.measure import LapClock
from harness.precision import Precision
from harness.program import Forward, Program
from harness.schema import CompilerOptions
from harness.sizes import smaller_inputs
from harness.tensors import cast_module, fresh_copy, named_tensors
from harness.workload import Workload

NARROWER = (torch.float32, torch.bfloat16, torch.float16)  # than fp64: to cast them is to copy them

Lap = Callable[[], None]
"""To be called by a drive when prefill is done; waits for the device and reads the clock."""

Step = Callable[[], tuple[Any, Any]]
"""``step() -> (loss, output)``: gradients cleared, forward, loss, backward; or the forward alone."""


def seed_everything(seed: int) -> None:
    """Seeds Python's and torch's generators (all devices), and numpy's where it is loaded."""
    import sys

    random.seed(seed)
    torch.manual_seed(seed)
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        numpy.random.seed(seed % 2**32)


def replica(
    workload: Workload,
    device: torch.device,
    cast: torch.dtype | None,
    *,
    training: bool,
    exact: bool = False,
    eval_mode: bool = False,
    options: CompilerOptions | None = None,
) -> Program:
    """A fresh copy of the workload on the device. ``exact`` widens it to fp64 *after* the cast,
    so that the reference has the very weights and inputs that are timed."""
    module = copy.deepcopy(workload.module, _unowned(workload.module) if exact else {}).to(device)
    if cast is not None:
        cast_module(module, cast)
    values = [fresh_copy(v, device, cast) for v in (workload.args, dict(workload.kwargs), workload.target)]
    if exact:
        cast_module(module, torch.float64)
        values = [fresh_copy(value, device, torch.float64) for value in values]
    module.train(training and not eval_mode)
    args, kwargs, target = values
    return Program(
        module=module,
        args=args,
        kwargs=kwargs,
        target=target,
        loss=workload.loss,
        training=training,
        drive=workload.drive,
        options=options or CompilerOptions(),
    )


def _unowned(module: torch.nn.Module) -> dict[int, Any]:
    """For ``deepcopy``: parameters on the same memory, of which ``cast_module`` then makes the only copy."""
    return {
        id(parameter): torch.nn.Parameter(parameter.detach(), parameter.requires_grad)
        for parameter in module.parameters()
        if type(parameter) is torch.nn.Parameter and parameter.dtype in NARROWER
    }


def make_step(
    program: Program,
    forward: Forward,
    context: Callable[[], AbstractContextManager[Any]],
    lap: Lap = lambda: None,
    forced: torch.Tensor | None = None,
) -> Step:
    """The step that is timed. Autocast covers forward and loss, not the backward, as users write it.

    Where dynamic shapes are asked for, a step runs smaller batches too, and its own last.
    """
    module, args = program.module, program.args
    sizes = (*smaller_inputs(program), (args, program.kwargs, program.target))
    leaves = [tensor for _, tensor in named_tensors(sizes, "input") if tensor.requires_grad]

    def training_step() -> tuple[Any, Any]:
        for given in sizes:
            module.zero_grad(set_to_none=True)
            for leaf in leaves:
                leaf.grad = None
            with context():
                loss, output = forward(*given)
            loss.backward()
        return loss, output

    def inference_step() -> tuple[Any, Any]:
        with torch.no_grad(), context():
            for given in sizes:
                result = forward(*given)
        return result

    def driven_step() -> tuple[Any, Any]:
        assert program.drive is not None
        with torch.no_grad(), context():
            return None, program.drive(call, module, args, lap, forced)

    def call(*given: Any, **named: Any) -> Any:
        return forward(given, named, None)[1]

    if program.drive is not None:
        return driven_step
    return training_step if program.training else inference_step


class Variant:
    """A step with its own module, its initial buffers and inputs, and what it takes to compare it.

    To be made before a compiler sees the program: tracing one runs it. Until
    ``use`` gives it a compiled forward, its step is eager's.
    """

    def __init__(self, program: Program, precision: Precision, device: torch.device) -> None:
        self.program = program
        self._precision = precision
        self._context = lambda: precision.context(device.type)
        self._forward = program.forward()
        self._lap: Lap = lambda: None
        self._forced: torch.Tensor | None = None
        self.step = self._make_step()
        self._initial: dict[str, torch.Tensor] = {}
        self.remember()

    def use(self, forward: Forward) -> None:
        """Makes ``forward`` what the step runs."""
        self._forward = forward
        self.step = self._make_step()

    def drive_with(self, lap: Lap | None = None, forced: torch.Tensor | None = None) -> None:
        """For a driven step: who is told when prefill is done, and which tokens it goes on with."""
        self._lap = lap or (lambda: None)
        self._forced = forced
        self.step = self._make_step()

    def timed(self, laps: LapClock) -> Callable[[], object]:
        """The step as the rounds run it: a driven one says when its first part is done."""
        if self.program.drive is None:
            return self.step
        self.drive_with(lap=laps.lap)
        return laps.timing(self.step)

    def _make_step(self) -> Step:
        step = make_step(self.program, self._forward, self._context, self._lap, self._forced)
        if not self._precision.tf32:
            return step

        def surrounded() -> tuple[Any, Any]:
            with self._precision.surroundings():
                return step()

        return surrounded

    def remember(self) -> None:
        """Takes buffers and inputs as they are for those that ``restore`` puts back."""
        self._initial = {name: t.detach().clone() for name, t in self._mutable()}

    def restore(self) -> None:
        """Puts buffers and inputs back as they were built, in place: compiled code keeps their addresses."""
        with torch.no_grad():
            for name, tensor in self._mutable():
                before = self._initial.get(name)
                if before is not None and tensor.shape == before.shape:
                    tensor.copy_(before)

    def _mutable(self) -> Iterator[tuple[str, torch.Tensor]]:
        """What a step may change in place, by name."""
        yield from named_tensors(self._given(), "given")
        for name, buffer in self.program.module.named_buffers():
            yield f"buffer.{name}", buffer

    def _given(self) -> tuple[Any, ...]:
        return self.program.args, self.program.kwargs, self.program.target

    def results(self, loss: Any, output: Any, *, lasting: bool = False) -> dict[str, torch.Tensor]:
        """Everything one step produced, by name: loss, outputs, gradients, buffers. All dense.

        Clones, but for gradients: a step drops the last one's instead of writing over them. Only compiled
        code may use their memory again: ``lasting`` clones them, too.
        """
        found = dict(named_tensors(output, "output"))
        if isinstance(loss, torch.Tensor):
            found["loss"] = loss
        gradients = dict(self._gradients())
        # unchanged ones, too: one that only eager's step changes is an error
        buffers = {f"buffer.{name}": buffer for name, buffer in self.program.module.named_buffers()}
        return {
            name: dense if name in gradients and not lasting else dense.clone()
            for name, tensor in {**found, **gradients, **buffers}.items()
            for dense in (_dense(tensor.detach()),)
        }

    def _gradients(self) -> Iterator[tuple[str, torch.Tensor]]:
        for name, parameter in self.program.module.named_parameters():
            if parameter.grad is not None:
                yield f"gradient.{name}", parameter.grad
        for name, tensor in named_tensors((self.program.args, self.program.kwargs), "input_gradient"):
            if tensor.grad is not None:
                yield name, tensor.grad

    def release(self) -> None:
        """Drops the gradients that the last step left."""
        self.program.module.zero_grad(set_to_none=True)
        for _, tensor in named_tensors(self._given(), "given"):
            tensor.grad = None

    def persistent_bytes(self) -> int:
        """Bytes of parameters, buffers and inputs: what a step finds there when it begins (storages once)."""
        tensors = [*self.program.module.parameters(), *self.program.module.buffers()]
        tensors += [t for _, t in named_tensors(self._given(), "given")]
        plain = [part.untyped_storage() for tensor in tensors for part in _parts(tensor)]
        return sum({storage.data_ptr(): storage.nbytes() for storage in plain}.values())


def _parts(tensor: torch.Tensor) -> list[torch.Tensor]:
    """The tensors that hold the data: a quantised one is made of several, and has no storage itself."""
    flatten = getattr(tensor, "__tensor_flatten__", None)
    if flatten is None:
        return [tensor]
    return [part for name in flatten()[0] for part in _parts(getattr(tensor, name))]


def _dense(tensor: torch.Tensor) -> torch.Tensor:
    """Gradients of embeddings may be sparse; those are compared as what they stand for."""
    return tensor if tensor.layout is torch.strided else tensor.to_dense()
