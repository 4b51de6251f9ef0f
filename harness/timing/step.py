"""One step of a variant, and the results that parity compares."""

from __future__ import annotations

import copy
import dataclasses
import random
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from functools import partial
from typing import Any

import torch

from harness.loading.sizes import smaller_inputs
from harness.precision import Precision, allow_tf32
from harness.program import Batch, Forward, Program
from harness.recorded.numerics import DEFAULT_OPTIMIZER
from harness.schema import Protocol
from harness.tensors import as_tensor, dense_parts, named_leaves, named_tensors
from harness.timing.copies import given_of
from harness.timing.measure import LapClock
from harness.timing.modes import InFp64
from harness.timing.optimizer import CLASSES, Update
from harness.timing.state import Kept, State
from harness.workload import Workload

Lap = Callable[[], None]
"""A drive calls it when prefill is done. It synchronizes the device and reads the clock."""

Take = Callable[[str, torch.Tensor], torch.Tensor]
"""Of a tensor with its name, the copy that is kept."""

Step = Callable[[], tuple[Any, Any]]
"""``step() -> (loss, output)``: gradients cleared, forward, loss, backward; or the forward alone."""


def seed_everything(seed: int) -> None:
    """Seeds the generators of Python, of torch (all devices), and of numpy if it is imported."""
    random.seed(seed)
    torch.manual_seed(seed)
    if (numpy := sys.modules.get("numpy")) is not None:
        numpy.random.seed(seed % 2**32)


def batch_of_training(
    program: Program,
    forward: Forward,
    context: Callable[[], AbstractContextManager[Any]],
    update: Update | None = None,
) -> Batch:
    """A batch of a training step. Autocast covers forward and loss but not the backward, as torch recommends.

    torch cannot compile a part of a function with a loop: there is none.
    """
    scale = program.loss_scale

    def batch(args: Any, kwargs: Any, target: Any, last: bool) -> tuple[Any, Any]:
        with context():
            loss, output = forward(args, kwargs, target)
        loss.backward(*(() if scale == 1.0 else (torch.full_like(loss, scale),)))
        if last and update is not None:
            update()
        return loss, output

    return batch


class Variant(State):
    """A step with its own module and state. The step is eager until ``use`` sets a compiled forward.

    ``switches``: other variants of the session have another
    setting of TF32, so every step sets its own. (The session sets it once if all variants share it, because
    switching takes time that a tiny step would show.)
    """

    def __init__(
        self,
        program: Program,
        precision: Precision,
        device: torch.device,
        *,
        switches: bool = False,
        exact: bool = False,
        protocol: Protocol | None = None,
    ) -> None:
        """``exact``: an fp64 program. ``protocol``: what a training step does beside forward and backward."""
        super().__init__(program)
        self._channels_last = protocol is not None and protocol.channels_last
        self._grad = protocol is not None and protocol.grad
        protocol = protocol if protocol is not None and program.training else Protocol()
        self._precision, self._device = precision, device
        self._switches = switches
        self._context: Callable[[], AbstractContextManager[Any]] = (
            InFp64 if exact else lambda: precision.context(device.type)
        )
        self.whole = False  # whether the whole step is compiled
        self._forward = program.forward()
        if protocol.optimizer != "none":
            own = program.optimizer, self._gradients
            self._update = Update(protocol, program.module, program.loss_scale, *own)
        self._batch = self._batch_of(self._forward)
        self._of_smaller: dict[str, torch.Tensor] = {}  # results of the smaller batches of an observed step
        self.drive_with()
        self.graph_bytes: int | None = 0  # memory that its CUDA graphs keep; None: unknown
        self.remember()

    def _gradients(self) -> None:
        """Leaves the gradients of one eager step, and buffers and inputs as they were."""
        self.remember()
        self._batch_of(self._forward)(*self.program.given(), True)
        self._put_back()

    def use(self, forward: Forward, compile_batch: Callable[[Batch], Batch] | None = None) -> None:
        """Lets the step run ``forward``, or all of it what ``compile_batch`` makes of it."""
        self._forward, self._batch = forward, self._batch_of(forward)
        if compile_batch is not None:
            self._batch, self.whole = compile_batch(self._batch), True
        self.drive_with()

    def training(
        self, weights: Mapping[str, torch.Tensor], protocol: Protocol, rate: float
    ) -> Callable[[], object]:
        """Begins a training run with these weights. Returns the optimizer's step, which follows each step.

        That of a timed step, eager for candidates, too, is then apart from it; of a whole step, it stays in
        it. ``rate``: of an optimizer that is no function of the user's.
        """
        self.restore()
        with torch.no_grad():
            for name, parameter in self.program.module.named_parameters():
                parameter.copy_(weights[name])
        own = self.program.optimizer
        if self.whole and self._update is not None:
            if own is None:
                self._update.set_rate(rate)
            return lambda: None
        if self._update is not None:
            self._update = None
            self.use(self._forward)
        name = DEFAULT_OPTIMIZER if protocol.optimizer == "none" else protocol.optimizer
        make = own or partial(CLASSES[name], lr=rate)
        return Update(protocol, self.program.module, self.program.loss_scale, make, self._gradients)

    def with_inputs(self, workload: Workload) -> Variant:
        """The same module and forward with the workload's inputs. Not of a step that updates or is whole."""
        self.restore()  # a tracing compiler has changed buffers
        variant = copy.copy(self)
        given = given_of(
            workload, self._device, self._precision.cast, exact=False, channels_last=self._channels_last
        )
        variant.program = dataclasses.replace(self.program, **given)
        variant._of_smaller = {}  # noqa: SLF001 - of this class
        variant.drive_with()
        variant.remember()
        variant.kept = self.kept and Kept(variant.program, self.kept.names)
        return variant

    def _batch_of(self, forward: Forward) -> Batch:
        return batch_of_training(self.program, forward, self._context, self._update)

    def step_with(self, lap: Lap) -> Step:
        """The step that calls ``lap`` after each forward and its loss, before the backward."""
        forward = self._forward

        def lapped(args: Any, kwargs: Any, target: Any) -> tuple[Any, Any]:
            results = forward(args, kwargs, target)
            lap()
            return results

        return self._switching(self._step_of(lapped, self._batch_of(lapped)))

    def output(self) -> Any:
        """The output of one forward of the module in eager, without loss and gradients."""
        with torch.no_grad(), self._context():
            return self.program.module(*self.program.args, **self.program.kwargs)

    def output_for(self, given: Any) -> Any:
        """The output of the (compiled) forward with other ``given`` inputs and target, without a backward."""
        if self._switches:
            allow_tf32(self._precision.tf32)
        with torch.set_grad_enabled(self.program.training or self._grad), self._context():
            return self._forward(*given)[1]

    def drive_with(
        self, lap: Lap = lambda: None, forced: torch.Tensor | None = None, *, observed: bool = False
    ) -> None:
        """Makes the step. ``lap`` and ``forced`` are of a driven one (see ``harness.workload.Drive``).

        ``observed``: the results of smaller batches, and the present weights, are kept for ``results``.
        """
        if observed and self._update is not None:
            self._update.begin()
        see = self._seeing(observed=observed)
        self.step = self._switching(self._step_of(self._forward, self._batch, lap, forced, see))

    def timed(self, laps: LapClock) -> Callable[[], object]:
        """The step for the rounds. A driven step reports its prefill to ``laps``."""
        if self.program.drive is None:
            return self.step
        self.drive_with(lap=laps.lap)
        return laps.timing(self.step)

    def _step_of(
        self,
        forward: Forward,
        batch: Batch,
        lap: Lap = lambda: None,
        forced: torch.Tensor | None = None,
        see: Callable[[int, Any, Any], None] = lambda *_: None,
    ) -> Step:
        """The step that is timed: ``batch`` in training, else ``forward``.

        A training step begins with gradients of None. With dynamic shapes, a step also runs smaller batches,
        and then its own. ``see`` gets the place, loss and output of each batch.
        """
        # not self, which would make a cycle that keeps the model's memory
        program, context = self.program, self._context
        module, args, grad = program.module, program.args, self._grad
        sizes = (*smaller_inputs(program), (args, program.kwargs, program.target))
        clear = _clearing(module, sizes)
        before = clear if grad else lambda: None

        def training_step() -> tuple[Any, Any]:
            for place, given in enumerate(sizes, 1):
                clear()
                loss, output = batch(*given, place == len(sizes))
                see(place, loss, output)
            return loss, output

        def inference_step() -> tuple[Any, Any]:
            with torch.set_grad_enabled(grad), context():
                for place, given in enumerate(sizes, 1):
                    before()
                    result = forward(*given)
                    see(place, *result)
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

    def _switching(self, step: Step) -> Step:
        """The step after the switch to the variant's own TF32, where variants differ in it."""
        if not self._switches:
            return step
        tf32 = self._precision.tf32  # not self, as above

        def switched() -> tuple[Any, Any]:
            allow_tf32(tf32)
            return step()

        return switched

    def results(self, loss: Any, output: Any, take: Take) -> dict[str, torch.Tensor]:
        """What ``take`` keeps of one step, by name: loss, outputs, gradients, buffers. All are dense.

        Of the smaller batches that the step has run, with ``@`` and their place: loss, outputs and gradients.
        """
        # all buffers, because a buffer that only eager's step changes is an error
        buffers = {f"buffer.{name}": buffer for name, buffer in self.program.module.named_buffers()}
        updated = dict(self._update.results()) if self._update is not None else {}
        results = {**_named_results(self.program, loss, output), **buffers, **updated}
        kept = {name: take(name, tensor) for name, tensor in _dense(results)}
        kept.update((name, take(name, tensor)) for name, tensor in self._of_smaller.items())
        self._of_smaller.clear()
        return kept

    def _seeing(self, *, observed: bool) -> Callable[[int, Any, Any], None]:
        """Keeps the results of the smaller batches of an observed step."""
        smaller = len(smaller_inputs(self.program)) if observed else 0
        kept = self._of_smaller  # not self, as above

        def see(place: int, loss: Any, output: Any) -> None:
            if place <= smaller:
                tensors = _named_results(self.program, loss, output)
                kept.update({f"{name}@{place}": t.clone() for name, t in _dense(tensors)})

        return see


def _clearing(module: torch.nn.Module, sizes: tuple[Any, ...]) -> Callable[[], None]:
    """A function that clears the gradients of the module and of the inputs."""
    leaves = [tensor for _, tensor in named_tensors(sizes, "input") if tensor.requires_grad]

    def clear() -> None:
        module.zero_grad(set_to_none=True)
        for leaf in leaves:
            leaf.grad = None

    return clear


def _named_results(program: Program, loss: Any, output: Any) -> dict[str, torch.Tensor]:
    """Outputs, loss and gradients of the last step of ``program``, by name."""
    leaves = ((name, as_tensor(leaf)) for name, leaf in named_leaves(output, "output"))
    tensors = {name: tensor for name, tensor in leaves if tensor is not None}
    if isinstance(loss, torch.Tensor):
        tensors["loss"] = loss
    for name, parameter in program.module.named_parameters():
        if parameter.grad is not None:
            tensors[f"gradient.{name}"] = parameter.grad
    for name, tensor in named_tensors((program.args, program.kwargs), "input_gradient"):
        if tensor.grad is not None:
            tensors[name] = tensor.grad
    return tensors


def _dense(tensors: Mapping[str, torch.Tensor]) -> Iterator[tuple[str, torch.Tensor]]:
    """The tensors as dense ones. Gradients of embeddings may be sparse."""
    return (part for name, tensor in tensors.items() for part in dense_parts(name, tensor.detach()))
