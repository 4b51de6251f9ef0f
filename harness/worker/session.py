"""The work of a worker on one job, call by call. The parent decides; this class measures.

open -> prepare (once a candidate) -> warm_up -> measure (repeatedly) -> finish -> conclude

With ``--envs`` several workers share a job, one for each environment. The session of the reference
environment exports its weights, inputs and eager's results; the other sessions import them in ``open``.
The workers take turns, one round each.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import closing, suppress
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import torch

from harness.backends import load_backend
from harness.counters import forget_sizes, watching_breaks
from harness.devices import of
from harness.failures import JobFailed, attempting, describe_failure, log_traceback
from harness.hardware.nvml import gpu_of
from harness.loading.sizes import batches
from harness.metrics import ByVariant, Ended, at_the_end, by_variant, complete_step, observing
from harness.numerics.batches import batch_invariance
from harness.numerics.card import Cards
from harness.numerics.trajectory import Trajectories
from harness.parity import between
from harness.parity.between import CrossParity, another_model, compare_eager
from harness.parity.calls import FirstCalls, first_calls
from harness.parity.checks import Checks
from harness.parity.field import tolerance_of, verdict_of_torch
from harness.parity.watch import Watch
from harness.program import Compiled, Compilers
from harness.recorded.numerics import Numerics
from harness.schema import BASELINE, Failure, Job, ModelFacts, Parity, Round, Scalar, Status, TensorError
from harness.shapes.sizes import has_stream
from harness.shapes.stream import ShapeStream
from harness.timing.first_calls import FIRST_CALLS, stopwatch, timed
from harness.timing.measure import STREAM, STREAM_S, enough_iterations, iterations_for, placement, stream_of
from harness.timing.rounds import Rounds, Turns
from harness.timing.start_up import StartUp
from harness.timing.step import Variant, seed_everything
from harness.timing.warm_up import heat, warm_up
from harness.timing.workbench import TOKENS, Results, Workbench, cloned
from harness.worker.environment import describe
from harness.worker.opening import Opening, rule_of
from harness.worker.status_page import Activity
from harness.workload import Build

Measured = tuple[list[Round], dict[str, int]]
"""Rounds, and the number of graphs that each variant compiled during them ({} in a good batch)."""

Changed = dict[str, TensorError]
"""Variant -> worst tensor, for variants whose results have changed since their check."""


class Session:
    """One job in this process. It knows nothing about pipes, records or other jobs."""

    # set by ``open``
    _bench: Workbench
    _watch: Watch
    _imported: between.Imported | None

    def __init__(
        self,
        job: Job,
        announce: Callable[[Activity], None],
        build: Build | None = None,
        compilers: Compilers | None = None,
    ) -> None:
        self._stream = ShapeStream(job, self._say, build) if has_stream(job) else None
        self._job = job = job if self._stream is None else self._stream.job
        self._compilers = compilers or {}
        self._builder = build
        self._announce = announce
        self._device = torch.device(job.device)
        self._pace = of(self._device).pace
        self._variants: dict[str, Variant] = {}
        # how many candidates are copied before the timed eager; -1: none are, and ``open`` has copied it
        self._copied_before = placement((BASELINE, *job.candidates), job).index(BASELINE) or -1
        self._cards: Cards | None = None  # None without --numerics, and when all candidates have been checked
        self.controls: tuple[Numerics, ...] = ()
        self.numerics: dict[str, Numerics | None] = {}  # of each candidate
        self._checks: Checks | None = None  # None without parity, and when all candidates have been checked
        self._baseline_step_s = math.nan
        self._iterations = 1
        self._rounds = Rounds(job.protocol, self._device, self._say)
        self._turns = Turns(self._rounds)
        self._step_s: dict[str, float] = {}  # in its last timed round
        self._kept: list[Round] = []  # a round of the warm-up that counts as timed
        self.recompilations = self._rounds.recompilations
        self.first_calls_s: dict[str, list[float]] = {}  # of each candidate, in order
        self._of_rounds: dict[str, Scalar] = {}
        self._replays = False  # whether a candidate replays CUDA graphs
        self._untidy = False  # whether dropped variants may still hold the device's memory
        self._start_up = StartUp(job.protocol)
        self._trajectories: Trajectories | None = None

    # -- open ---------------------------------------------------------------

    def open(
        self, imported: Path | None = None, first_data_only: str = ""
    ) -> tuple[ModelFacts, dict[str, Scalar]]:
        """Builds the model and runs eager. If parity is to be checked, eager runs twice and in fp64.

        ``imported``: a file of another worker's ``export``; its weights and inputs replace the session's own.
        ``first_data_only``: why parity is not checked on other data ("": it is).
        """
        # not kept: it holds tensors
        opening = Opening(self._job, self._device, self._say, self._builder, first_data_only)
        facts = opening.open(imported)
        self._bench, self._checks, self._watch = opening.bench, opening.checks, opening.watch
        self._cards, self.controls = opening.cards, opening.cards.controls if opening.cards else ()
        self._rounds.look = self._watch.look
        self._imported = opening.imported
        self._variants[BASELINE] = opening.baseline
        self._baseline_step_s = opening.baseline_step_s
        self._untidy = opening.checks is not None  # the fp64 run has left memory
        scaled = self._bench.training and self._bench.precision.lowest is torch.float16
        return facts, describe(self._device) | ({"loss_scale": self._bench.loss_scale} if scaled else {})

    # -- several environments -------------------------------------------------

    def export(self, path: Path) -> None:
        """Writes weights, inputs and eager's results. Call it before ``warm_up``, which drops the results."""
        self._say("eager")
        truth = None if self._checks is None else self._checks.truth_with_more_noise()
        between.export(path, self._bench.workload, truth, self._bench.loss_scale)

    def cross_parity(self) -> CrossParity:
        """Compares this environment's eager with the reference environment's eager, with the same weights."""
        self._say("eager")
        imported, checks = self._imported, self._checks
        if imported is None:
            return Status.PASS_DUE_TO_SKIP, None, ()
        theirs = imported.truth(rule_of(self._job, self._bench), self._device)
        if checks is None or theirs is None:
            return Status.PASS_DUE_TO_SKIP, None, (imported.problem,) if imported.problem else ()
        if imported.problem:
            return another_model(theirs, imported.problem)
        results = checks.truth.eager
        if self._bench.generates and TOKENS in theirs.eager:
            results = self._bench.run_with_tokens(self._bench.variant(), theirs.eager[TOKENS])
        return compare_eager(theirs, results, checks)

    # -- prepare ------------------------------------------------------------

    def prepare(
        self, candidate: str, figures: Path | None = None
    ) -> tuple[Status, Parity | None, dict[str, Scalar], tuple[str, ...]]:
        """Compiles one candidate, proves that it was compiled, and checks its parity.

        ``figures``: the file for the table of the check (``harness.parity.check``).
        """
        self._tidy()
        self._untidy = True  # until it has succeeded
        self._place_baseline()
        self._copied_before -= 1
        self._say("compile", candidate)
        forget_sizes()
        breaks = watching_breaks()
        with attempting("compile", Status.FAIL_TO_RUN):
            variant, compiled, calls, numbers = self._compile(candidate)
        if not compiled.control and compiled.compiler_calls() <= 0:
            message = compiled.why_nothing() or (
                f"nothing of the model reached {candidate}" + "".join(f": {why}" for why in breaks()[:1])
            )
            raise JobFailed(
                Status.NOT_COMPILED, Failure(kind="NotCompiled", message=message, phase="compile")
            )
        status, parity = Status.PASS_DUE_TO_SKIP, None
        notes = (*compiled.notes, *compiled.late_notes())
        if self._checks is not None and calls is not None:
            self._say("check", candidate)
            with attempting("check", Status.FAIL_TO_RUN):
                status, parity, more = self._checks.judge(variant, compiled, calls, figures)
            self._watch.remember(variant, calls.results[0], self._checks)
            notes += more
            if self._cards is not None:
                first = calls.results[0]
                self.numerics[candidate] = self._cards.card(candidate, lambda: first, self._checks.truth)
                notes += tuple(self._cards.notes)
                self._cards.notes.clear()  # each is told once
            if of(self._device).accelerated:
                variant.release()  # its gradients would take as much as its weights until its next step
        elif self._stream is not None and self._job.protocol.accuracy and not compiled.control:
            status, parity, more = self._stream.judge(compiled)
            notes += more
        elif compiled.approximate:
            status = Status.APPROXIMATE
        self._variants[candidate] = variant
        self._untidy = False
        return status, parity, numbers, notes

    def whole_results(self, candidate: str = "", *, exact: bool = False) -> Results:
        """Of one step, without sketches: of eager, of eager in fp64 (``exact``), or of a candidate."""
        self._bench.take = cloned
        return self._bench.run(self._variants[candidate] if candidate else self._bench.variant(exact=exact))

    def verdict_of_torch(self, candidate: str) -> str:
        """What PyTorch's own harness would say of the candidate, in a sentence."""
        exact = Results()
        with suppress(Exception):  # then it judges without fp64
            exact = self.whole_results(exact=True)
        eager, results, case = self.whole_results(), self.whole_results(candidate), self._job.case
        tolerance = tolerance_of(case.mode) if case.tolerance is None else case.tolerance
        return verdict_of_torch(eager, exact, results, tolerance, equal_nan=self._job.dtype != "float32")

    def _place_baseline(self) -> None:
        """Copies eager again where its place is behind a candidate's (``placement``)."""
        if self._copied_before or not self._job.protocol.performance:
            return
        self._say("eager", BASELINE)
        with attempting("eager", Status.EAGER_FAIL_TO_RUN, Status.EAGER_1ST_RUN_OOM):
            placed = self._bench.timed_variant()  # if it has no memory, the first copy stays
            self._watch.moved(self._variants.pop(BASELINE), placed)
            self._variants[BASELINE] = placed

    def _compile(self, candidate: str) -> tuple[Variant, Compiled, FirstCalls | None, dict[str, Scalar]]:
        """Compiles, and runs the first calls, whose results the check needs."""
        bench, start_up = self._bench, self._start_up
        variant = bench.timed_variant(candidate)
        source = self._job.own_compilers.get(candidate, "")
        backend = self._compilers.get(candidate) or load_backend(candidate, source, start_up.package)
        results = None

        def compile_it() -> Compiled:
            start_up.load()
            return backend(variant.program)

        with observing("compile", self._device, self._job.extras) as numbers:
            with bench.precision.surroundings():
                compiling, compiled = timed(compile_it, bench.synchronize)
            variant.use(compiled.forward, compiled.compile_batch)
            calls = list[float]()
            if self._stream is not None:
                calls = self._stream.run(bench, variant)
            elif start_up.races:
                calls = start_up.steps(variant.step, bench.synchronize)
            elif self._checks is not None:
                results = first_calls(bench, variant, calls)
            else:
                bench.step(variant, stopwatch(calls))
                calls += bench.call_times(variant, FIRST_CALLS - 1)
            calls[0] += compiling
        self.first_calls_s[candidate] = calls
        if start_up.races:
            start_up.store()
        elif self._stream is None:
            numbers["compilation_latency_s"] = self.compilation_latency_s(candidate)
        numbers["compiled_region"] = compiled.region
        if autotuned := compiled.autotuned():
            numbers["autotuned_kernels"] = autotuned
        variant.graph_bytes = self._graph_bytes(compiled, numbers)
        return variant, compiled, results, dict(numbers)

    def _graph_bytes(self, compiled: Compiled, numbers: dict[str, Scalar]) -> int | None:
        """The memory of the candidate's CUDA graphs. Unknown for a second candidate with such graphs."""
        if "cudagraph_pool_bytes" not in numbers:
            return 0
        if compiled.replays and self._replays:
            numbers["cudagraph_pool_bytes"] = None
        self._replays = self._replays or compiled.replays
        kept = numbers["cudagraph_pool_bytes"]
        return kept if isinstance(kept, int) else None

    def compilation_latency_s(self, candidate: str) -> float:
        """Seconds of the candidate's first calls, less as many eager steps (settled after the warm-up)."""
        beyond = sum(self.first_calls_s[candidate][:FIRST_CALLS]) - FIRST_CALLS * self._baseline_step_s
        return max(0.0, beyond)

    def _tidy(self) -> None:
        """Frees what the fp64 run, failed candidates and compilation have left on the device."""
        if self._untidy:
            self._bench.tidy()
            self._untidy = False

    # -- measure ------------------------------------------------------------

    def keep_only(self, names: tuple[str, ...]) -> None:
        """Drops all other candidates: later rounds run without them."""
        self._variants = {n: v for n, v in self._variants.items() if n == BASELINE or n in names}

    def warm_up(self) -> dict[str, Scalar]:
        """Runs rounds until times and page faults have settled; then fixes the steps per sample.

        The last round counts as timed if it is like a timed round: samples are single steps, and there is
        one environment. (Several environments do not take turns during the warm-up.)
        """
        self._turns.close()
        self._place_baseline()
        self._say("warm up")
        self._checks = self._cards = None  # all candidates have been checked: frees memory for the rounds
        self._untidy = True
        self._tidy()
        heated = self._heat()
        with closing(self._rounds.endless(self._variants, 1, "warm up")) as rounds:
            allocations = of(self._device).allocator_counts
            most_s = self._pace.warm_up_s
            done = warm_up(rounds, self.recompilations, allocations=allocations, most_s=most_s)
        if self._bench.baseline_precision == self._bench.precision:
            self._baseline_step_s = done.fastest_s(BASELINE)
        shortest_s = self._job.protocol.min_sample_s
        self._iterations = 1  # state of the model is put back before a sample
        if not self._bench.state:
            self._iterations = enough_iterations(
                done.rounds,
                lambda n: next(self._rounds.endless(self._variants, n, "warm up")),
                max(shortest_s, STREAM_S if self._streams else 0.0),
            )
            if self._streams:
                seconds, most = done.rounds[-1].seconds.values(), max(STREAM, self._iterations)
                asked = iterations_for(min(seconds), shortest_s, most=most)
                self._iterations = max(asked, stream_of(max(seconds), most))
        counts = self._iterations == 1 and not self._job.environments
        self._kept = list(done.counting if counts else ())
        self._rounds.done = len(self._kept)
        before = done.rounds[: len(done.rounds) - len(self._kept)]
        for name, calls in self.first_calls_s.items():
            calls += [timed.seconds[name] for timed in before if name in timed.seconds]
        return {
            "warmup_rounds": len(before),
            "warmup_rounds_kept": len(self._kept),
            "warmup_settled": done.settled,
            "iterations_per_sample": self._iterations,
            **heated,
        }

    @property
    def _streams(self) -> bool:
        """Whether the host runs ahead of the device from step to step. A generating step waits inside."""
        return of(self._device).accelerated and not self._bench.generates

    def _heat(self) -> dict[str, Scalar]:
        """Puts load on an accelerator until its clock and power have settled."""
        if not of(self._device).accelerated:
            return {}
        gpu = gpu_of(self._device)
        read = None if gpu is None else lambda: (float(gpu.clock_mhz()), gpu.power_w())
        steps = {name: variant.step for name, variant in self._variants.items()}
        return {"heated_s": heat(steps, self._bench.synchronize, read, partial(self._say, "warm up"))}

    def preview(self, candidate: str, rounds: int) -> list[Round]:
        """Rounds of eager and one candidate, before the others are compiled. They do not count."""
        self._tidy()
        variants = {name: self._variants[name] for name in (BASELINE, candidate)}
        with closing(self._rounds.endless(variants, 1, "warm up")) as endless:
            warm_up(endless, self.recompilations, most_s=self._pace.warm_up_s)
        with closing(self._rounds.endless(variants, 1, "measure")) as endless:
            timed = list(islice(endless, rounds))
        self._rounds.done = 0
        return timed

    def measure(self, rounds: int, within_s: float = math.inf, resting: Collection[str] = ()) -> Measured:
        """At most ``rounds`` rounds and at least one. After ``within_s`` seconds no further round begins.

        ``resting``: candidates that have enough rounds, and are not timed in these.
        If Dynamo gives up on a variant after its first calls (recompilation limit), the variant runs eager
        from then on. It is reported as compiling in every later batch.
        """
        variants = {name: variant for name, variant in self._variants.items() if name not in resting}
        done, self._kept = self._kept, []
        done = [timed for timed in done if timed.seconds.keys() == variants.keys()]
        with closing(self._rounds.endless(variants, self._iterations, "measure")) as endless:
            return self._measured(endless, rounds, within_s, done)

    def take_turn(self, iterations: int) -> Measured:
        """One round with ``iterations`` steps per sample, while the other workers wait for their turns."""
        return self._measured(self._turns.begin(self._variants, iterations), 1, math.inf, [])

    def _measured(
        self, endless: Iterator[Round], rounds: int, within_s: float, done: list[Round]
    ) -> Measured:
        self.recompilations.start()
        with observing("rounds", self._device, self._job.extras, self._of_rounds, self._rounds.between):
            start = time.perf_counter()
            while not done or (len(done) < rounds and time.perf_counter() - start < within_s):
                done.append(next(endless))
        self._step_s |= done[-1].seconds
        return done, self.recompilations.counts()

    # -- finish -------------------------------------------------------------

    def finish(self, *, soon: bool = False) -> tuple[Changed, ByVariant, dict[str, Failure]]:
        """One more step of every variant: the drift check, and the metrics of a step.

        ``soon``: no more calls are looked at.
        If eager's results have changed, the model itself drifts from step to step; only eager is named then,
        because the change of a candidate has no meaning. So eager comes last. A variant whose step fails is
        among the failures.
        """
        self._turns.close()
        changed, of_steps, failed = Changed(), ByVariant(), dict[str, Failure]()
        for name, variant in sorted(self._variants.items(), key=lambda item: item[0] == BASELINE):
            self._say("finish", name)
            numbers: dict[str, Scalar] = {}
            several = len(batches(variant.program)) > 1  # copies of the smaller ones' results take memory
            watch = observing("step", self._device, self._job.extras, numbers)
            try:
                variant.release()
                late = self._watch.changed(variant, self._bench.run(variant, None if several else watch))
                if late is None and not soon and self._looks_on(name, changed):
                    self._look_on(variant, self._step_s.get(name, 0.0))
                late = late or self._watch.changed_in_rounds(variant)
                variant.release()
                if several:
                    with watch:
                        self._bench.call_times(variant, 1)
                    variant.release()
            except Exception as error:
                log_traceback()
                if of(self._device).accelerated and not of(self._device).healthy():
                    raise  # no later step can run in this process, either
                failed[name] = describe_failure(error, "finish")
                continue
            if late is not None:
                changed[name] = late
            complete_step(variant, self._job.extras, numbers)
            of_steps[name] = numbers
        return {BASELINE: changed[BASELINE]} if BASELINE in changed else changed, of_steps, failed

    def _looks_on(self, name: str, changed: Changed) -> bool:
        """Whether more calls are looked at: of eager, only where they may explain a candidate's change.

        Eager of another environment is judged itself. In a later process, the rounds alone are looked at.
        """
        if changed or self._job.environments:
            return True
        return name != BASELINE and not self._job.protocol.process

    def _look_on(self, variant: Variant, step_s: float) -> None:
        """Looks at more calls where samples hid them: at least two, of steps that take so long."""
        most = max(2.0, self._pace.looks_s / max(step_s, 1e-9))
        for _ in range(int(min(most, self._watch.missing_looks(variant)))):
            variant.rewind()
            seed_everything(self._job.protocol.seed)
            self._watch.look(variant, variant.step())

    def conclude(self, *, soon: bool = False) -> ByVariant:
        """The metrics that are measured last, by variant; the whole job's are under ``WHOLE``.

        ``soon``: only those that need no further step.
        """
        self._say("finish", BASELINE)
        ended = Ended(
            job=self._job, device=self._device, variants=self._variants, synchronize=self._bench.synchronize
        )
        metrics = {} if soon else at_the_end(ended)
        if self._job.extras.batch_invariant and not (soon or self._job.protocol.process):
            # the last of all: it compiles for a batch of one
            for name, numbers in batch_invariance(ended).items():
                metrics.setdefault(name, {}).update(numbers)
        if self._rounds.throttled:
            self._of_rounds["throttled_rounds"] = self._rounds.throttled
        for name, numbers in by_variant(self._of_rounds).items():
            metrics[name] = {**numbers, **metrics.get(name, {})}
        return metrics

    def trajectory(self, run: str, repeat: int) -> dict[str, Any]:
        """A training run, after all other measurements: of a candidate, or of eager as ``run`` names it."""
        if self._trajectories is None:
            self._tidy()
            say = partial(self._say, "trajectory")
            self._trajectories = Trajectories(self._job, self._bench, say, self._baseline_step_s)
        course = self._trajectories.run(run, self._variants.get(run), repeat)
        return {"course": course, **self._trajectories.facts()}

    def _say(self, phase: str, variant: str = "") -> None:
        self._announce(Activity(phase=phase, variant=variant, rounds=self._rounds.done))
