"""A process of ``--shapes``: the calls of one candidate, each with inputs of its size.

The one model is built at the largest size. The clock has the calls alone: state and seeds are set before
each. Then every size goes through the check of parity, with the result of its first call in the stream.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from harness.failures import attempting
from harness.loading.suite_files import load_suite
from harness.parity.between import Imported
from harness.parity.calls import first_calls
from harness.parity.measure import sketch
from harness.parity.rule import Verdict
from harness.program import Compiled
from harness.schema import Job, Status
from harness.shapes.sizes import PASSES, case_at, largest_case, sizes_of
from harness.timing.first_calls import timed
from harness.timing.step import Variant, seed_everything
from harness.timing.workbench import Results, Workbench, cloned
from harness.worker.opening import Opening
from harness.workload import Build, Workload


class ShapeStream:
    """``run``, then ``judge``. ``job``: at the size at which the model is built."""

    def __init__(self, job: Job, say: Callable[[str], None], build: Build | None) -> None:
        self._spec = job.extras.shapes
        self.job = replace(job, case=largest_case(job.case, self._spec))
        self._say = say
        self._build: Build = build or (lambda case: load_suite(case.suite).build(case))
        self._bench: Workbench
        self._workloads: dict[int, Workload] = {}
        self._variants: dict[int, Variant] = {}
        self._results: dict[int, Results] = {}

    def _named(self, size: int) -> Callable[[BaseException, str], str]:
        return lambda _, words: f"{self._at(size)}: {words}"

    def _at(self, size: int) -> str:
        return f"{self._spec.partition('=')[0]}={size}"

    def run(self, bench: Workbench, variant: Variant) -> list[float]:
        """Seconds of each call."""
        self._bench, seed, sizes = bench, self.job.protocol.seed, sizes_of(self._spec)
        for size in sizes:
            with attempting("build", Status.MODEL_FAIL_TO_LOAD, explain=self._named(size)):
                seed_everything(seed)
                given = self._build(case_at(self.job.case, self._spec, size))
            self._workloads[size] = replace(
                bench.workload, args=given.args, kwargs=given.kwargs, target=given.target
            )
            self._variants[size] = variant.with_inputs(self._workloads[size])
        take = cloned if self.job.protocol.parity == "field" else sketch
        seconds = list[float]()
        for size in sizes * PASSES:
            here = self._variants[size]
            here.restore()
            seed_everything(seed)
            with attempting("compile", Status.FAIL_TO_RUN, explain=self._named(size)):
                took, (loss, output) = timed(here.step, bench.synchronize)
            seconds.append(took)
            if size not in self._results and self.job.protocol.accuracy:
                self._results[size] = here.results(loss, output, take)
            del loss, output
        return seconds

    def judge(self, compiled: Compiled) -> Verdict:
        """The first size that fails parity, else the first not judged, else the nearest to a limit."""
        verdicts = [self._judged(size, compiled) for size in self._variants]
        failed = [v for v in verdicts if v[0] is Status.FAIL_ACCURACY]
        others = [v for v in verdicts if not v[0].passed]
        return (failed or others or [max(verdicts, key=lambda v: v[1].used or 0.0)])[0]

    def _judged(self, size: int, compiled: Compiled) -> Verdict:
        """The name of the worst tensor begins with the size."""
        job = replace(self.job, protocol=replace(self.job.protocol, start=""))
        opening = Opening(job, self._bench.device, self._say, lambda _: self._workloads[size])
        opening.imported = Imported(path=Path(), loss_scale=self._bench.loss_scale)  # that of the calls
        with attempting("eager", Status.EAGER_1ST_RUN_FAIL, explain=self._named(size)):
            opening.open()
        checks, variant = opening.checks, self._variants[size]
        assert checks is not None
        with attempting("check", Status.FAIL_TO_RUN, explain=self._named(size)):
            calls = first_calls(opening.bench, variant, [])
            calls.results[0] = self._results[size]
            status, parity, notes = checks.judge(variant, compiled, calls)
        if (worst := parity.worst) is not None:
            parity = replace(parity, worst=replace(worst, name=f"{self._at(size)}: {worst.name}"))
        return status, parity, tuple(f"{self._at(size)}: {note}" for note in notes)
