"""What a worker does with one job, call by call. The parent decides; this class measures.

open -> prepare (once a candidate) -> warm_up -> measure (repeatedly) -> finish
"""

from __future__ import annotations

import math
import resource
import time
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, closing, nullcontext
from dataclasses import replace
from typing import Any

import torch

from harness import parity
from harness.backends import load_backend
from harness.environment import describe
from harness.facts import facts_of
from harness.failures import describe_failure, is_out_of_memory, log_traceback
from harness.finish import Changed, last_metrics, last_steps
from harness.first_calls import FIRST_CALLS, seconds_of, stopwatch, timed
from harness.late import LateCheck
from harness.losses import REDUCTIONS
from harness.measure import (
    Instruments,
    LapClock,
    enough_iterations,
    measure_round,
    quiet_collector,
    round_order,
)
from harness.metrics import ByVariant, Ended, observing
from harness.precision import Precision, precision, settle
from harness.program import Compiled, Program
from harness.recompilations import Recompilations
from harness.reference import Reference, family_of, make_reference, rule_for
from harness.schema import BASELINE, Case, Failure, Job, Mode, ModelFacts, Parity, Round, Scalar, Status
from harness.sensitivity import shaken_runs
from harness.status_page import Activity
from harness.step import Variant, replica, seed_everything
from harness.suite_files import load_suite
from harness.warming_up import warm_up
from harness.workload import Workload

Results = dict[str, torch.Tensor]
TOKENS = "output.tokens"  # what a step that generates chose


class JobFailed(Exception):
    """The job, or one candidate of it, ends here with this status."""

    def __init__(self, status: Status, failure: Failure) -> None:
        super().__init__(failure.message)
        self.status = status
        self.failure = failure


class Session:
    """One job in this process. Knows nothing of pipes, records or other jobs."""

    KEEPS = True  # the last round of the warm-up, where it can count

    def __init__(
        self,
        job: Job,
        announce: Callable[[Activity], None],
        build: Callable[[Case], Workload] | None = None,
    ) -> None:
        self._job = job
        self._builder = build
        self._announce = announce
        self._device = torch.device(job.device)
        self._precision = precision(job.dtype, self._device.type)
        self._baseline_precision = precision(job.baseline_dtype or job.dtype, self._device.type)
        self._training = job.case.mode is Mode.TRAINING
        self._variants: dict[str, Variant] = {}
        self._workload: Workload | None = None
        self._reference: Reference | None = None
        self._late = LateCheck()
        self._tokens: torch.Tensor | None = None  # what eager generated first
        self._baseline_step_s = math.nan
        self._iterations = 1
        self._rounds_done = 0
        self._kept: list[Round] = []  # a round of the warm-up that counts as timed
        self.recompilations = Recompilations()
        self.first_calls_s: dict[str, list[float]] = {}  # of each candidate, in the order they ran
        self._of_rounds: dict[str, Scalar] = {}

    # -- open ---------------------------------------------------------------

    def open(self) -> tuple[ModelFacts, dict[str, Scalar]]:
        """Builds the model and runs eager: twice and in fp64 when parity is to be checked."""
        self._say("build")
        settle(self._device)
        workload = self._attempt(self._build, Status.MODEL_FAIL_TO_LOAD, Status.OOM, "open")
        self._workload = workload
        if self._job.protocol.threads is not None:
            torch.set_num_threads(self._job.protocol.threads)  # the model's code may have set others
        self._say("eager")
        checked = self._job.protocol.accuracy
        fail = Status.EAGER_1ST_RUN_FAIL if checked else Status.EAGER_FAIL_TO_RUN
        eager, first = self._attempt(self._open_baseline, fail, Status.EAGER_1ST_RUN_OOM, "eager")
        if checked:
            fail_again, oom_again = Status.EAGER_2ND_RUN_FAIL, Status.EAGER_2ND_RUN_OOM
            second = self._attempt(lambda: self._run_again(eager, first), fail_again, oom_again, "eager")
            self._say("fp64")
            oom = Status.EAGER_1ST_RUN_OOM
            self._reference = self._attempt(lambda: self._refer(first, second), fail, oom, "eager")
            if self._precision == self._baseline_precision:
                self._late.remember(self._variants[BASELINE], first, self._reference)
        else:
            self._attempt(self._time_baseline, fail, Status.EAGER_1ST_RUN_OOM, "eager")
        facts = facts_of(self._variants[BASELINE].program, self._job.case.batch_size)
        return facts, describe(self._device)

    def _build(self) -> Workload:
        seed_everything(self._job.protocol.seed)
        build = self._builder or load_suite(self._job.case.suite).build
        workload = build(self._job.case)
        if not isinstance(workload, Workload):
            raise TypeError(f"build() of suite {self._job.case.suite!r} returned a {type(workload).__name__}")
        if (workload.drive is not None) != (self._job.case.mode is Mode.GENERATE):
            raise ValueError("a case that generates needs a drive, and no other case has one")
        if self._job.case.loss != "own":
            workload = replace(workload, loss=REDUCTIONS[self._job.case.loss])
        if self._training and workload.loss is None:
            raise ValueError("this case has no loss, so it cannot be trained")
        return workload

    def _replica(self, kind: Precision, *, exact: bool = False) -> Program:
        assert self._workload is not None
        return replica(
            self._workload,
            self._device,
            kind.cast,
            training=self._training,
            eval_mode=self._job.protocol.use_eval_mode,
            exact=exact,
            options=self._job.options,
        )

    def _variant(self, kind: Precision | None = None) -> Variant:
        kind = kind or self._precision
        return Variant(self._replica(kind), kind, self._device)

    def _run(self, variant: Variant, watch: AbstractContextManager[object] | None = None) -> Results:
        """One step from the seed and the initial buffers, inside ``watch``, and everything it produced.

        A step that generates goes on with the tokens of eager's first run, whatever it chooses
        itself: the choices are all the same exactly if it would have generated the same alone.
        """
        return self._comparable(variant.results(*self._step(variant, watch or nullcontext())))

    def _step(self, variant: Variant, watch: AbstractContextManager[object]) -> tuple[Any, Any]:
        variant.restore()  # earlier steps have changed it, and so has a compiler that traces
        seed_everything(self._job.protocol.seed)
        variant.drive_with(forced=self._tokens)
        self._synchronise()
        with watch:
            made = variant.step()
            self._synchronise()
        variant.drive_with()
        return made

    def _comparable(self, results: Results) -> Results:
        """In reduced precision a near tie may go to another token: the logits alone are compared."""
        if self._job.case.mode is Mode.GENERATE and self._precision.reduced and self._tokens is not None:
            results.pop(TOKENS, None)
        return results

    def _open_baseline(self) -> tuple[Variant, Results]:
        """Eager as candidates are compared with it, and what it gives."""
        eager = self._variants[BASELINE] = self._variant(self._baseline_precision)
        if self._baseline_precision != self._precision:
            eager = self._variant()  # whatever candidates are timed against
        results = self._run(eager)
        self._tokens = results.get(TOKENS) if self._job.case.mode is Mode.GENERATE else None
        return eager, self._comparable(results)

    def _run_again(self, eager: Variant, first: Results) -> Results:
        """Eager once more; where it differs, on a copy as settled as a candidate is at its last check."""
        times = list[float]()
        second = self._run(eager, stopwatch(times))
        self._baseline_step_s = times[0]
        if parity.equal(first, second):
            return first  # the memory of equal tensors is needed once
        copy = self._variant()
        self._baseline_step_s = min(self._call_times(copy, FIRST_CALLS - 1))
        return self._run(copy)

    def _refer(self, first: Results, second: Results) -> Reference:
        if not any(family_of(name) == "value" for name in first):
            raise ValueError(
                "found no tensor in the output (tuples, lists, mappings, dataclasses) to compare"
            )
        rule = rule_for(
            self._job.protocol.parity, self._job.case.mode, self._precision, self._job.case.tolerance
        )
        return make_reference(self._exact_results(), first, second, rule)

    def _exact_results(self) -> Results | None:
        full = precision("float32", self._device.type)  # no autocast: fp64 throughout
        try:
            exact = self._run(Variant(self._replica(self._precision, exact=True), full, self._device))
        except Exception as error:  # anything may refuse fp64; eager itself is then the reference
            print(f"no fp64 reference: {error}", flush=True)
            return None
        exact.pop(TOKENS, None)  # tokens are to be eager's: fp64's may differ where two are near a tie
        return exact

    def _time_baseline(self) -> None:
        """The settled eager step (s), to be taken off a candidate's first calls."""
        self._baseline_step_s = min(self._call_times(self._variants[BASELINE], FIRST_CALLS))

    # -- prepare ------------------------------------------------------------

    def prepare(self, candidate: str) -> tuple[Status, Parity | None, dict[str, Scalar], tuple[str, ...]]:
        """Compiles one candidate, proves that it was compiled, and checks its parity."""
        self._say("compile", candidate)
        fail, oom = Status.FAIL_TO_RUN, Status.OOM
        variant, compiled, results, numbers = self._attempt(
            lambda: self._compile(candidate), fail, oom, "compile"
        )
        if not compiled.control and compiled.compiler_calls() <= 0:
            message = f"{candidate} was asked to compile this model, but its compiler was never called"
            raise JobFailed(
                Status.NOT_COMPILED, Failure(kind="NotCompiled", message=message, phase="compile")
            )
        status, found = Status.PASS_DUE_TO_SKIP, None
        if self._reference is not None:
            self._say("check", candidate)
            status, found = self._attempt(lambda: self._check(variant, *results), fail, oom, "check")
            if compiled.approximate and status is Status.FAIL_ACCURACY and parity.resembles(found):
                status = Status.PASS_DUE_TO_SKIP  # its error is meant: it is shown, not judged
        self._variants[candidate] = variant
        return status, found, numbers, (*compiled.notes, *compiled.late_notes())

    def _compile(self, candidate: str) -> tuple[Variant, Compiled, list[Results], dict[str, Scalar]]:
        """Compiles, and runs the first calls. What the first and the last of them gave is for the check."""
        variant = self._variant()
        backend = load_backend(candidate)
        results = list[Results]()
        with observing("compile", self._device, self._job.extras) as numbers:
            with self._precision.surroundings():
                compiling, compiled = timed(lambda: backend(variant.program), self._synchronise)
            variant.use(compiled.forward)
            calls = list[float]()
            loss, output = self._step(variant, stopwatch(calls))
            calls[0] += compiling
            if self._reference is not None:
                results.append(self._comparable(variant.results(loss, output, lasting=True)))
            del loss, output
            calls += self._call_times(variant, FIRST_CALLS - 2)
            if self._reference is not None:
                results.append(self._run(variant, stopwatch(calls)))
            else:
                calls += self._call_times(variant, 1)
        self.first_calls_s[candidate] = calls
        numbers["compilation_latency_s"] = self.compilation_latency_s(candidate)
        numbers["compiled_region"] = compiled.region
        return variant, compiled, results, dict(numbers)

    def compilation_latency_s(self, candidate: str) -> float:
        """What its first calls took beyond as many eager steps: settled ones, once warm-up is over."""
        beyond = sum(self.first_calls_s[candidate][:FIRST_CALLS]) - FIRST_CALLS * self._baseline_step_s
        return max(0.0, beyond)

    def _check(self, variant: Variant, first: Results, settled: Results) -> tuple[Status, Parity]:
        """Parity of the first call and of a settled one: the settled one is what is timed."""
        assert self._reference is not None
        self._late.remember(variant, settled, self._reference)
        shaken = shaken_runs(self._reference, self._variant, self._run) if self._training else tuple
        found = parity.compare_both(self._reference, first, settled, shaken)
        if not self._reference.can_judge:
            return Status.EAGER_TWO_RUNS_DIFFER, found
        return (Status.FAIL_ACCURACY if found.failed else Status.PASS), found

    # -- measure ------------------------------------------------------------

    def keep_only(self, names: tuple[str, ...]) -> None:
        """Forgets every candidate not named, so that later rounds run without it."""
        self._variants = {n: v for n, v in self._variants.items() if n == BASELINE or n in names}

    def warm_up(self) -> dict[str, Scalar]:
        """Whole rounds until times and page faults have settled; then fixes the iterations.

        None of them counts as timed, unless the last is what a timed one will be: of samples of one step.
        """
        self._say("warm up")
        self._reference = None  # every candidate has been compared: the memory is the rounds' now
        with closing(self._rounds(1, "warm up")) as rounds:
            done = warm_up(rounds, self.recompilations)
        if self._baseline_precision == self._precision:
            self._baseline_step_s = done.fastest_s(BASELINE)
        self._iterations = enough_iterations(
            done.rounds, lambda n: next(self._rounds(n, "warm up")), self._job.protocol.min_sample_s
        )
        self._kept = list(done.counting if self.KEEPS and self._iterations == 1 else ())
        self._rounds_done = len(self._kept)
        before = done.rounds[: len(done.rounds) - len(self._kept)]
        for name, calls in self.first_calls_s.items():
            calls += [one.seconds[name] for one in before if name in one.seconds]
        return {
            "warmup_rounds": len(before),
            "warmup_rounds_kept": len(self._kept),
            "warmup_settled": done.settled,
            "iterations_per_sample": self._iterations,
        }

    def measure(self, rounds: int, within_s: float = math.inf) -> tuple[list[Round], dict[str, int]]:
        """That many rounds, and how many graphs each variant compiled during them (none, if all is well).

        After ``within_s`` seconds no further round begins: machines turn slow. There is one in any case.
        A variant on which Dynamo gave up after its first calls (its limit of
        recompilations) runs eager from then on: it counts as compiling for good.
        """
        self.recompilations.start()
        done, self._kept = self._kept, []
        done = [one for one in done if one.seconds.keys() == self._variants.keys()]
        with (
            observing("rounds", self._device, self._job.extras, self._of_rounds),
            closing(self._rounds(self._iterations, "measure")) as endless,
        ):
            start = time.perf_counter()
            while not done or (len(done) < rounds and time.perf_counter() - start < within_s):
                done.append(next(endless))
        return done, self.recompilations.found()

    def _rounds(self, iterations: int, phase: str) -> Generator[Round, None, None]:
        """Rounds without end, with garbage collection off until the generator is closed."""
        laps = LapClock(time.perf_counter, self._synchronise)
        steps = {name: variant.timed(laps) for name, variant in self._variants.items()}

        def announce(variant: str) -> None:
            self.recompilations.runs(variant)
            self._say(phase, variant)

        instruments = Instruments(
            clock=time.perf_counter,
            synchronise=self._synchronise,
            reseed=lambda: seed_everything(self._job.protocol.seed),
            minor_faults=lambda: resource.getrusage(resource.RUSAGE_SELF).ru_minflt,
            announce=announce,
            prefill_s=laps.take,
        )
        compiled_before = phase == "warm up" and self._rounds_done == 0  # which leaves much garbage
        with quiet_collector(thorough=compiled_before) as collect:
            while True:
                collect()
                order = round_order(tuple(steps), self._job.protocol, self._rounds_done)
                one = measure_round(steps, order, iterations, instruments)
                self._rounds_done += 1
                announce(BASELINE)  # attributes what the last variant compiled
                yield one

    # -- finish -------------------------------------------------------------

    def finish(self) -> tuple[Changed, ByVariant]:
        """Which variants no longer compute what they did when checked, and metrics of these steps."""
        return last_steps(self._ended(), self._late, self._run, lambda name: self._say("finish", name))

    def conclude(self) -> ByVariant:
        """What is measured last of all, by variant; what concerns the whole job is under ``WHOLE``."""
        self._say("finish", BASELINE)
        return last_metrics(self._ended(), self._of_rounds)

    def _ended(self) -> Ended:
        return Ended(
            job=self._job, device=self._device, variants=self._variants, synchronise=self._synchronise
        )

    # -- helpers ------------------------------------------------------------

    def _call_times(self, variant: Variant, calls: int) -> tuple[float, ...]:
        return seconds_of(variant.step, calls, self._synchronise)

    def _synchronise(self) -> None:
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)

    def _say(self, phase: str, variant: str = "") -> None:
        self._announce(Activity(phase=phase, variant=variant, rounds=self._rounds_done))

    def _attempt(self, work: Callable[[], Any], status: Status, oom: Status, phase: str) -> Any:
        try:
            return work()
        except (JobFailed, KeyboardInterrupt):
            raise
        except BaseException as error:  # sys.exit, a cancelled task: a model may raise anything
            log_traceback()
            failure = describe_failure(error, phase)
            raise JobFailed(oom if is_out_of_memory(error) else status, failure) from error
