"""Makes the variants of one workload, each with its own copy, and runs single steps of them."""

from __future__ import annotations

import gc
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch

from harness.devices import of
from harness.precision import Precision, precision, settle
from harness.program import Program
from harness.schema import Job, Mode
from harness.timing.copies import replica
from harness.timing.first_calls import timed
from harness.timing.state import Kept
from harness.timing.step import Take, Variant, seed_everything
from harness.workload import Workload

Results = dict[str, torch.Tensor]
LARGEST_SCALE, HEADROOM = 2.0**15, 2.0**3  # the first is finite in float16
TOKENS = "output.tokens"  # the tokens that a generating step chose


def cloned(_: str, tensor: torch.Tensor) -> torch.Tensor:
    return tensor.clone()


class Workbench:
    """The job's workload on its device, at its precision."""

    def __init__(self, job: Job, device: torch.device, workload: Workload) -> None:
        self._job = job
        self.device = device
        self.workload = workload
        self.precision = precision(job.dtype, device.type)
        self.baseline_precision = precision(job.baseline_dtype or job.dtype, device.type)
        self.training = job.case.mode is Mode.TRAINING
        self.generates = job.case.mode is Mode.GENERATE
        self.tokens: torch.Tensor | None = None  # the tokens of eager's first run
        self.take: Take = cloned  # what is kept of a result
        self.state: tuple[str, ...] = ()  # see ``find_state``
        self.loss_scale = 1.0
        self.timeout_s = job.protocol.timeout_s
        self.approximate_sqnr = job.protocol.approximate_sqnr

    def timed_variant(self, candidate: str = "") -> Variant:
        """For the rounds: a candidate, not compiled yet, or the baseline (``""``), at its precision."""
        return self.variant(self.precision if candidate else self.baseline_precision)

    def variant(
        self, kind: Precision | None = None, *, exact: bool = False, make: Callable[..., Variant] = Variant
    ) -> Variant:
        """Eager on a fresh copy. ``exact``: in fp64, with the weights and inputs of the timed variants."""
        kind = kind or self.precision
        full = precision("float32", self.device.type)  # no autocast
        switches = self.precision.tf32 != self.baseline_precision.tf32
        program = self._replica(kind, exact=exact)
        used = full if exact else kind
        protocol = self._job.protocol
        variant = make(program, used, self.device, switches=switches, exact=exact, protocol=protocol)
        variant.kept = Kept(program, self.state) if self.state else None
        return variant

    def find_state(self) -> tuple[str, ...]:
        """The names of what a step changes beside weights, buffers and tensors that are given.

        All later variants put it back.
        """
        variant = self.variant()
        kept = Kept(variant.program)
        self.step(variant)
        self.state = kept.moved()
        return self.state

    def settle(self, *, stepped: bool = True) -> bool:
        """Sets the TF32 that all variants share. Returns whether the model's code had changed it.

        ``stepped``: variants have run, whose steps change it where eager has another TF32.
        """
        tf32 = self.precision.tf32 and self.baseline_precision.tf32
        same = self.precision.tf32 == self.baseline_precision.tf32
        return settle(self.device, tf32=tf32) and (same or not stepped)

    def tidy(self) -> None:
        """Gives the memory of dropped variants back to the device. Keeps the CPU's, which steps use again.

        Tracebacks and compilers keep variants in reference cycles until a collection, and the device's
        allocator keeps their memory in blocks that may not fit the next variant.
        """
        device = of(self.device)
        if device.accelerated:
            gc.collect()
            device.empty_cache()

    def _replica(self, kind: Precision, *, exact: bool) -> Program:
        return replica(
            self.workload,
            self.device,
            kind.cast,
            training=self.training,
            eval_mode=self._job.protocol.use_eval_mode,
            keep_dropout=self._job.protocol.keep_dropout,
            channels_last=self._job.protocol.channels_last,
            exact=exact,
            options=self._job.options,
            loss_scale=self.loss_scale,
        )

    def scale_loss(self) -> None:
        """Chooses the scale of the loss for training in float16, whose small gradients would become zero.

        A power of two, which changes no digit: eager, fp64 and all candidates have the same. As a GradScaler,
        it takes the largest that leaves eager's gradients finite; ``HEADROOM`` is for other data.
        """
        if not self.training or self.precision.lowest is not torch.float16:
            return
        self.loss_scale = LARGEST_SCALE
        while self.loss_scale > 1.0 and not self._gradients_are_finite():
            self.loss_scale /= 2
        self.loss_scale = max(1.0, self.loss_scale / HEADROOM)

    def _gradients_are_finite(self) -> bool:
        variant = self.variant()
        self.step(variant)
        gradients = (p.grad for p in variant.program.module.parameters() if p.grad is not None)
        dense = (g if g.layout is torch.strided else g.to_dense() for g in gradients)
        return all(bool(torch.isfinite(gradient).all()) for gradient in dense)

    def run(
        self,
        variant: Variant,
        watch: AbstractContextManager[object] | None = None,
        *,
        other_seed: int = 0,
        restored: bool = True,
    ) -> Results:
        """The results of one step from the seed and the initial buffers, run inside ``watch``.

        A generating step continues with the tokens of eager's first run, whatever it chooses. If all its
        choices equal these tokens, it would have generated them alone, too.
        """
        step = self.step(variant, watch, other_seed, restored=restored)
        return self.results(variant, *step)

    def results(self, variant: Variant, loss: Any, output: Any) -> Results:
        """What is kept of a step: all tensors of its results, by name.

        Without tokens in reduced precision: at a near tie another token is no error.
        """
        results = variant.results(loss, output, self.take)
        if self.generates and self.precision.reduced and self.tokens is not None:
            results.pop(TOKENS, None)
        return results

    def step(
        self,
        variant: Variant,
        watch: AbstractContextManager[object] | None = None,
        other_seed: int = 0,
        *,
        restored: bool = True,
    ) -> tuple[Any, Any]:
        """Loss and output of one step, as in ``run``. ``restored``: from the initial buffers and inputs."""
        if restored:
            variant.restore()  # earlier steps and a tracing compiler have changed buffers
        seed_everything(self._job.protocol.seed + other_seed)
        variant.drive_with(forced=self.tokens, observed=True)
        self.synchronize()
        with watch or nullcontext():
            result = variant.step()
            self.synchronize()
        variant.drive_with()
        return result

    def output(self, variant: Variant) -> Any:
        """The output of one forward of the variant's module in eager, without loss and gradients.

        It may not be there yet: whoever reads a value waits for it.
        """
        seed_everything(self._job.protocol.seed)
        return variant.output()

    def run_with_tokens(self, variant: Variant, tokens: torch.Tensor | None) -> Results:
        """As ``run``, but a generating step continues with ``tokens``."""
        own, self.tokens = self.tokens, None if tokens is None else tokens.to(self.device)
        try:
            return self.run(variant)
        finally:
            self.tokens = own

    def call_times(self, variant: Variant, calls: int) -> tuple[float, ...]:
        """Seconds of each of ``calls`` steps. A step's result is freed before the next begins."""
        return tuple(timed(variant.step, self.synchronize)[0] for _ in range(calls))

    def synchronize(self) -> None:
        of(self.device).synchronize()
