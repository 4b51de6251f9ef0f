"""A process of ``--shapes``: the calls of one candidate, each with inputs of its size.

The one model is built at the largest size. The clock has the calls alone: state and seeds are set before
each, and results are kept after it. Then each size that ran is looked at again: whether compiled code runs,
and the check of parity, to which also the result of its first call in the stream is given.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import torch

from harness.backends.shared.options import NOT_TAKEN
from harness.counters import graphs_compiled
from harness.failures import JobFailed, attempting
from harness.loading.suite_files import load_suite
from harness.parity.between import Imported
from harness.parity.calls import first_calls
from harness.parity.measure import sketch
from harness.parity.rule import Verdict
from harness.program import Compiled
from harness.schema import Failure, Job, Parity, Status, Stream
from harness.shapes.sizes import MARKED, case_at, largest_case, sizes_run
from harness.timing.first_calls import timed
from harness.timing.step import Variant, seed_everything
from harness.timing.workbench import Results, Workbench, cloned
from harness.worker.opening import Opening
from harness.worker.status_page import Activity
from harness.workload import Build, Workload

REGION = "Torch-Compiled Region"  # torch's name, in a profile, of compiled code that runs


class ShapeStream:
    """``run``, then ``judge``. ``job``: at the size at which the model is built. ``done``: after ``run``."""

    def __init__(self, job: Job, announce: Callable[[Activity], None], build: Build | None) -> None:
        self._spec, seed = job.extras.shapes, job.protocol.seed
        self._sizes = sizes_run(self._spec, seed, job.options.strategy)
        self.job = replace(job, case=largest_case(job.case, self._spec, seed))
        self.done: Stream | None = None
        self._announce = announce
        self._build: Build = build or (lambda case: load_suite(case.suite).build(case))
        self._bench: Workbench
        self._workloads: dict[int, Workload] = {}
        self._variants: dict[int, Variant] = {}
        self._results: dict[int, Results] = {}

    def _at(self, size: int) -> str:
        return f"{self._spec.partition('=')[0]}={size}"

    def run(self, bench: Workbench, variant: Variant, compiled: Compiled) -> list[float]:
        """Seconds of each call. Raises ``JobFailed`` if the compiler does not have this strategy."""
        refused = [note for note in compiled.notes if NOT_TAKEN in note]
        if refused:
            raise JobFailed(Status.SKIP, Failure(kind="NotTaken", message=refused[0], phase="compile"))
        self._bench = bench
        for size in dict.fromkeys(self._sizes):
            with attempting("build", Status.MODEL_FAIL_TO_LOAD, explain=self._named(size)):
                seed_everything(self.job.protocol.seed)
                workload = self._build(case_at(self.job.case, self._spec, size))
            self._workloads[size] = replace(
                bench.workload, args=workload.args, kwargs=workload.kwargs, target=workload.target
            )
            self._variants[size] = variant.with_inputs(self._workloads[size])
        if self.job.options.strategy == MARKED:
            mark([[*self._variants[size].state()] for size in self._variants])
        take = cloned if self.job.protocol.parity == "field" else sketch
        seconds, graphs = list[float](), [graphs_compiled()]
        for size in self._sizes:
            here = self._variants[size]
            here.restore()
            seed_everything(self.job.protocol.seed)
            with attempting("compile", Status.FAIL_TO_RUN, explain=self._named(size)):
                took, (loss, output) = timed(here.step, bench.synchronize)
            seconds.append(took)
            graphs.append(graphs_compiled())
            if size not in self._results and self.job.protocol.accuracy:
                self._results[size] = here.results(loss, output, take)
            del loss, output
        compiled_in = tuple(n for n, (before, now) in enumerate(itertools.pairwise(graphs)) if now > before)
        places = None
        if graphs[-1] > graphs[0]:
            eager = {size for size in self._variants if not self._runs_compiled(size)}
            places = tuple(n for n, size in enumerate(self._sizes) if size in eager)
        self.done = Stream(sizes=self._sizes, compiled=compiled_in, eager=places)
        return seconds

    def _named(self, size: int) -> Callable[[BaseException, str], str]:
        return lambda _, words: f"{self._at(size)}: {words}"

    def _runs_compiled(self, size: int) -> bool:
        """Whether any compiled code runs at this size, which has been called before."""
        variant = self._variants[size]
        variant.restore()
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
            variant.step()
        return any(REGION in event.key for event in profile.key_averages())

    def judge(self, compiled: Compiled) -> Verdict:
        """The first size that fails parity, else the first that is not judged, else the nearest to a limit.

        The names of its tensors begin with the size.
        """
        verdicts: list[Verdict] = []
        for size, variant in self._variants.items():
            job = replace(self.job, options=replace(self.job.options, strategy=""))
            opening = Opening(job, self._bench.device, self._say, self._builder(size))
            opening.imported = Imported(path=Path(), loss_scale=self._bench.loss_scale)  # that of the calls
            with attempting("eager", Status.EAGER_1ST_RUN_FAIL, explain=self._named(size)):
                opening.open()
            checks = opening.checks
            assert checks is not None
            with attempting("check", Status.FAIL_TO_RUN, explain=self._named(size)):
                calls = first_calls(opening.bench, variant, [])
                calls.results[0] = self._results[size]
                status, parity, notes = checks.judge(variant, compiled, calls)
            notes = tuple(f"{self._at(size)}: {note}" for note in notes)
            verdicts.append((status, self._with_size(parity, size), notes))
        failed = [v for v in verdicts if v[0] is Status.FAIL_ACCURACY]
        others = [v for v in verdicts if not v[0].passed]
        return (failed or others or [max(verdicts, key=lambda v: v[1].used or 0.0)])[0]

    def _with_size(self, parity: Parity, size: int) -> Parity:
        if parity.worst is None:
            return parity
        return replace(parity, worst=replace(parity.worst, name=f"{self._at(size)}: {parity.worst.name}"))

    def _builder(self, size: int) -> Build:
        return lambda _: self._workloads[size]

    def _say(self, phase: str) -> None:
        self._announce(Activity(phase=phase, variant=self.job.candidates[0]))


def mark(states: list[list[tuple[str, torch.Tensor]]]) -> None:
    """Marks as dynamic, for Dynamo, the dimensions of inputs that differ between the sizes."""
    first = dict(states[0])
    for name in [name for name in first if name.startswith(("input", "target"))]:
        tensors = [dict(state)[name] for state in states]
        for place in range(tensors[0].dim()):
            if len({tensor.shape[place] for tensor in tensors}) > 1:
                for tensor in tensors:
                    torch._dynamo.mark_dynamic(tensor, place)  # noqa: SLF001
