"""The variants and references of a job with several ranks (``--ddp``).

The inputs of the other ranks are rank 0's, permuted, and all ranks have all of them. The references of parity
(eager, fp64, noisy eager) are one process, which runs them all and averages. Before an observed step, and
before rounds, each rank gets rank 0's weights, buffers and inputs, so changed data reaches all.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from harness.devices import of
from harness.parity.data import change_tensors
from harness.parity.measure import digest
from harness.precision import Precision
from harness.program import Batch, Forward, Program
from harness.tensors import fresh_copy
from harness.timing.measure import LapClock
from harness.timing.step import Step, Take, Variant, batch_of_training
from harness.timing.workbench import Results, Workbench

if TYPE_CHECKING:
    from harness.worker.ranks.team import Team


class Reference(Variant):
    """One process that runs all ranks' data: what the averaged gradients must be.

    Each rank begins with the same buffers and random numbers. Loss, outputs and buffers are rank 0's.
    """

    def _batch_of(self, forward: Forward) -> Batch:
        module, others, update = self.program.module, self.program.shares[1:], self._update
        backward = batch_of_training(self.program, forward, self._context)
        generators = [self._device] if of(self._device).accelerated else []

        def batch(args: Any, kwargs: Any, target: Any, last: bool) -> tuple[Any, Any]:
            buffers = [(buffer, buffer.detach().clone()) for buffer in module.buffers()]
            for share in others:
                with torch.random.fork_rng(generators):
                    backward(*share, False)
                with torch.no_grad():
                    for buffer, before in buffers:
                        buffer.copy_(before)
            results = backward(args, kwargs, target, False)
            for parameter in module.parameters():
                if parameter.grad is not None:
                    parameter.grad.div_(1 + len(others))
            if last and update is not None:
                update()
            return results

        return batch


class Parallel(Variant):
    """A variant in all ranks. ``team``: of rank 0, which leads; None in the others.

    ``unused``: whether a step leaves parameters without gradients.
    """

    def __init__(
        self, program: Program, *given: Any, team: Team | None, key: int, unused: bool, **more: Any
    ) -> None:
        self._team, self._key = team, key
        parallel = DistributedDataParallel(program.module, find_unused_parameters=unused)
        super().__init__(replace(program, parallel=parallel), *given, **more)

    def _step_of(self, *given: Any) -> Step:
        step = super()._step_of(*given)
        return step if self._team is None else self._team.with_others(step, self._key)

    def rewind(self, steps: int = 1) -> None:
        super().rewind(steps)
        if self._team is not None:
            self._team.announce(self._key, steps, rewind=True)

    def timed(self, laps: LapClock) -> Callable[[], object]:
        self.share()
        return super().timed(laps)

    def drive_with(self, *given: Any, observed: bool = False, **more: Any) -> None:
        if observed:
            self.share()
        super().drive_with(*given, observed=observed, **more)

    def share(self) -> None:
        """Weights, buffers, inputs and the optimizer's state become rank 0's in all ranks."""
        with contextlib.nullcontext() if self._team is None else self._team.together(), torch.no_grad():
            if self._team is not None:
                self._team.tell("share", self._key)
            tensors = (*self._mutable(), *self.program.module.named_parameters())
            for tensor in {id(tensor): tensor for _, tensor in tensors}.values():
                values = tensor.detach().contiguous().flatten()
                dist.broadcast(values.view(torch.uint8), 0)
                tensor.copy_(values.view(tensor.shape))

    def results(self, loss: Any, output: Any, take: Take) -> Results:
        if self._team is not None:
            self._team.compare(self._key, self.digests())
        return super().results(loss, output, take)

    def digests(self) -> dict[str, tuple[int, ...]]:
        """Of the gradients of the last step."""
        named = ((name, p.grad) for name, p in self.program.module.named_parameters())
        return {name: digest(gradient.to_dense()) for name, gradient in named if gradient is not None}


class Bench(Workbench):
    """The workbench of one rank, with the inputs of all ranks. ``team``: of rank 0; None in the others."""

    def __init__(self, *given: Any, ranks: int, rank: int = 0, team: Team | None = None) -> None:
        super().__init__(*given)
        self._ranks, self._rank, self._team = ranks, rank, team
        self._keys, self._unused = count(), False

    def _replica(self, kind: Precision, *, exact: bool) -> Program:
        program = super()._replica(kind, exact=exact)
        own = program.args, dict(program.kwargs), program.target
        shares = [own, *(fresh_copy(own, self.device, None) for _ in range(1, self._ranks))]
        with torch.no_grad():
            moved = [change_tensors(share, rank, share[2]) for rank, share in enumerate(shares[1:], 1)]
        said = f"{self._ranks} processes average their gradients (DistributedDataParallel); "
        said += "each has inputs of its own" if all(moved) else "all have the same inputs"
        given = dict(zip(("args", "kwargs", "target"), shares[self._rank], strict=True))
        return replace(program, **given, shares=tuple(shares), said=(*program.said, said))

    def variant(
        self, kind: Precision | None = None, *, exact: bool = False, make: Callable[..., Variant] = Reference
    ) -> Variant:
        return super().variant(kind, exact=exact, make=make)

    def timed_variant(self, candidate: str = "") -> Variant:
        """In all ranks, of which the others compile it now."""
        assert self._team is not None
        key = next(self._keys)
        with self._team.together():
            self._team.tell("make", key, candidate, self.loss_scale, self._unused)
            variant = self._team.variants[key] = self.parallel(candidate, key, unused=self._unused)
        return variant

    def parallel(self, candidate: str, key: int, *, unused: bool) -> Variant:
        kind = self.precision if candidate else self.baseline_precision
        return self.variant(kind, make=partial(Parallel, team=self._team, key=key, unused=unused))

    def results(self, variant: Variant, loss: Any, output: Any) -> Results:
        if isinstance(variant, Reference):
            weights = (p for p in variant.program.module.parameters() if p.requires_grad)
            self._unused = any(weight.grad is None for weight in weights)
        return super().results(variant, loss, output)
