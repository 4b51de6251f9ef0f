"""The opening of a session: the model is built, eager runs, and the reference of parity is made."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from harness.backends.shared.own_compiler import function_at
from harness.devices import of
from harness.failures import JobFailed, attempting, describe_failure
from harness.loading.dropout import KEPT_DROPOUT
from harness.loading.input_checks import explained, remarks
from harness.loading.losses import REDUCTIONS, remarks_on_loss
from harness.loading.plain_model import eager_alone
from harness.loading.sizes import facts_of
from harness.loading.suite_files import load_suite
from harness.numerics.card import Cards
from harness.parity import between
from harness.parity.calls import Form, repeats, watching_generators
from harness.parity.checks import Checks
from harness.parity.field import tolerance_of
from harness.parity.rule import Rule, rule_for
from harness.parity.watch import Watch
from harness.precision import precision, settle
from harness.program import Program
from harness.schema import Job, Mode, ModelFacts, Status
from harness.settings import is_own_model
from harness.shapes.sizes import has_stream
from harness.tensors import NoValuesError, listed
from harness.timing.first_calls import FIRST_CALLS, stopwatch
from harness.timing.start_up import StartUp
from harness.timing.step import Variant, seed_everything
from harness.timing.workbench import TOKENS, Results, Workbench
from harness.worker.environment import remarks_on_process
from harness.worker.limits import importing, set_threads
from harness.workload import Build, Workload


class Opening:
    """Opens a job's session. ``open`` sets the bench, the timed baseline and the checks of parity."""

    bench: Workbench
    baseline: Variant
    _form: Form  # of eager's first output

    def __init__(
        self,
        job: Job,
        device: torch.device,
        say: Callable[[str], None],
        build: Build | None,
        first_data_only: str = "",
    ) -> None:
        self._first_data_only = first_data_only
        self.imported: between.Imported | None = None
        self.checks: Checks | None = None  # None without parity
        self.cards: Cards | None = None  # None without --numerics
        self.watch = Watch()
        self.baseline_step_s = math.nan
        self._job = job
        self._device = device
        self._say = say
        self._builder = build
        self._drawn: list[str] = []  # the random generators that eager's step uses
        self._remarks: tuple[str, ...] = ()

    def open(self, imported: Path | None = None) -> ModelFacts:
        """Builds the model and runs eager. If parity is to be checked, eager runs twice and in fp64."""
        self._say("build")
        unusable = f"{self._device} cannot be used in this process: "
        with attempting("open", Status.INFRA_ERROR, Status.INFRA_ERROR, lambda _, words: unusable + words):
            of(self._device).open()
            names = (self._job.dtype, self._job.baseline_dtype or self._job.dtype)
            settle(self._device, tf32=all(precision(name, self._device.type).tf32 for name in names))
        with attempting("open", Status.MODEL_FAIL_TO_LOAD):
            workload = self.build()
            if imported is not None:
                self.imported, workload = between.imported(imported, workload)
        self.bench = Workbench(self._job, self._device, workload)
        self._settle("while it is built", stepped=False)
        set_threads(self._job.protocol.threads)
        # the candidate's first step is the first of a process that races or has a stream of shapes
        if StartUp(self._job.protocol).races or has_stream(self._job):
            self.baseline = self.bench.variant(self.bench.baseline_precision)
            return facts_of(self.baseline.program, self._remarks, ())
        self._say("eager")
        checked = self._job.protocol.accuracy
        fail = Status.EAGER_1ST_RUN_FAIL if checked else Status.EAGER_FAIL_TO_RUN
        explain = partial(
            explained, workload=workload, training=self.bench.training or self._job.protocol.grad
        )
        with attempting("eager", fail, Status.EAGER_1ST_RUN_OOM, explain):
            eager, first = self._open_baseline()
            self._settle("in its step, and again in each later step")
            if not checked:
                # the settled eager step, which is subtracted from a candidate's first calls
                self.baseline_step_s = min(self.bench.call_times(self.baseline, FIRST_CALLS))
        if (checks := self.checks) is not None:
            with attempting("eager", Status.EAGER_2ND_RUN_FAIL, Status.EAGER_2ND_RUN_OOM, explain):
                eager, second = self._run_again(checks, eager, first)
            self._say("fp64")
            with attempting("eager", fail, Status.EAGER_1ST_RUN_OOM, explain):
                checks.open(eager, first, second)
                if self.cards is not None:
                    self.cards.open(checks, eager, second)
                checks.noisy.clear()  # frees memory
            if self.bench.precision == self.bench.baseline_precision:
                self.watch.remember(self.baseline, first, checks)
        program = self.baseline.program
        said = (*program.said, *self._of_dropout(program), *self._remarks)
        if self.bench.training:
            said += remarks_on_loss(self.bench.workload.loss, first)
        said += remarks_on_process(self._device)
        return facts_of(program, said, tuple(self._drawn))

    def _settle(self, when: str, *, stepped: bool = True) -> None:
        """Restores the settings of TF32 that the precision means, with a remark if they were changed."""
        if self.bench.settle(stepped=stepped):
            changed = f"the model's code changes torch's precision of float32 products {when}: restored"
            self._remarks = (*self._remarks, changed)

    def _of_dropout(self, program: Program) -> tuple[str, ...]:
        rates = ", ".join(f"{rate:g}" for rate in sorted(set(program.rates)))
        if not rates or not self._drawn:  # in eval mode no dropout draws, and there is nothing to say
            return ()
        return (
            f"dropout ({rates}) is {KEPT_DROPOUT:g}: it runs and drops nothing (--dropout=keep leaves it)",
        )

    def build(self) -> Workload:
        """The suite's workload, checked, with the loss and the seed of the job."""
        seed_everything(self._job.protocol.seed)
        with importing():  # a build imports the model's library
            build = self._builder or load_suite(self._job.case.suite).build
            workload = build(self._job.case)
        if not isinstance(workload, Workload):
            raise TypeError(f"build() of suite {self._job.case.suite!r} returned a {type(workload).__name__}")
        if (workload.drive is not None) != (self._job.case.mode is Mode.GENERATE):
            raise ValueError("a case that generates needs a drive, and no other case has one")
        if self._job.case.loss != "own":
            workload = replace(workload, loss=REDUCTIONS[self._job.case.loss])
        if self._job.case.mode is Mode.TRAINING and workload.loss is None:
            raise ValueError("this case has no loss, so it cannot be trained")
        source = self._job.protocol.optimizer
        own: Any = (workload.optimizer or function_at(source)) if is_own_model(source) else None
        workload = replace(workload, optimizer=own)
        kind = precision(self._job.dtype, self._device.type)
        training = self._job.case.mode is Mode.TRAINING
        self._remarks = remarks(workload, self._device, kind, training=training)
        return workload

    def _open_baseline(self) -> tuple[Variant, Results]:
        """Eager at the candidates' precision, for the check of parity, and its results."""
        bench = self.bench
        if self.imported is None:
            bench.scale_loss()
        else:
            bench.loss_scale = self.imported.loss_scale
        eager = self.baseline = bench.variant(bench.baseline_precision)
        if bench.baseline_precision != bench.precision:
            eager = bench.variant()  # candidates are timed against another precision
        if self._job.protocol.accuracy:
            rule = rule_of(self._job, self.bench)
            protocol = self._job.protocol
            several = protocol.performance and protocol.processes != 1 and not self._job.environments
            process = protocol.process if several else None
            self.checks = Checks(bench, rule, eager, self._drawn, self._first_data_only, process)
            bench.take = self.checks.take
            if self._job.extras.numerics and not (protocol.process or protocol.start):
                self.cards = Cards(bench)
        watching = watching_generators(self._device, self._drawn, eager_alone())  # raises for compiled code
        loss, output = bench.step(eager, watching)
        self._form = Form.of(eager, output)
        try:
            results = bench.results(eager, loss, output)
        except NoValuesError as error:  # eager runs: it is this program that cannot
            raise JobFailed(Status.CANNOT_JUDGE, describe_failure(error, "eager")) from error
        bench.tokens = results.get(TOKENS) if bench.generates else None
        return eager, bench.results(eager, loss, output) if bench.tokens is not None else results

    def _run_again(self, checks: Checks, eager: Variant, first: Results) -> tuple[Variant, Results]:
        """Eager's second run from the same state, after the steps in a row that it runs for the checks.

        If the second step in a row repeats the first, it is that run. Otherwise, a copy runs as often as a
        candidate before its last check. Eager is another copy if state is found that ``eager`` did not save.
        """
        bench, times = self.bench, list[float]()
        step = bench.step(eager, stopwatch(times), restored=bench.generates)
        self.baseline_step_s = times[0]
        second = bench.results(eager, *step)
        if repeats(first, second):
            second = first  # equal tensors need memory only once
        form = Form.of(eager, step[1])
        del step
        checks.go_on(eager, first, second, self._form.steady(form))
        if second is first or repeats(first, bench.run(eager)):
            return eager, first
        if names := bench.find_state():
            copy = bench.variant()
            self.baseline = copy if self.baseline is eager else bench.timed_variant()
            eager = copy
            goes_on = f"state that is no buffer goes on from call to call in {listed(names)}"
            self._remarks = (*self._remarks, f"{goes_on}: where a check begins anew, it is put back")
            if repeats(first, bench.run(eager)):
                return eager, first
        copy = bench.variant()
        self.baseline_step_s = min(bench.call_times(copy, FIRST_CALLS - 1))
        return eager, bench.run(copy)


def rule_of(job: Job, bench: Workbench) -> Rule:
    """The rule of parity at the bench's precision."""
    rule = rule_for(job.protocol.parity, bench.precision)
    if rule.name != "field":
        return rule
    own = job.case.tolerance
    return replace(rule, delta=tolerance_of(job.case.mode) if own is None else own)
