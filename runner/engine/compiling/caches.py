"""Compile caches: ``--compile-runs``, ``--cold-start-latency`` and ``--warm-start-latency``.

Cold: every worker starts with an empty compile cache folder of its own. Candidates in one worker
may reuse what earlier candidates left in this folder. ``--isolate`` gives each candidate its own worker.

Without these flags, workers share the user's own caches: a later process, or environment with the same torch,
finds what an earlier one compiled of the same computation. torch's keys hold its version, the graph and all
options.

Warm: a first worker compiles every candidate into an empty folder, which gives the cold latency, and
ends. Then other workers measure the job with this filled folder, which gives the warm latency. The
record's ``compilation_latency_s`` is the warm latency.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from harness.schema import Job, Record, Scalar
from runner.analysis.verdicts.compiling import LATENCY
from runner.engine import Pause
from runner.engine.compiling.runs import Compilations, fresh_runs

COLD, WARM = "cold_compilation_latency_s", "warm_compilation_latency_s"

Caches = Callable[[], Path | None]
"""Returns the cache folder for the next worker; None: the user's own cache."""

Steps = Iterator[Record | Pause]
Run = Callable[[Job, Caches], Steps]
"""Measures a job with workers that use these caches."""


def with_starts(
    job: Job, candidates: Sequence[str], run: Run, folder: Path, stop: Callable[[], bool]
) -> Steps:
    """The records of these candidates, with the requested compilations.

    The caches are in ``folder`` until the job ends.
    """
    compilations: Compilations = {}
    if job.extras.compile_runs or job.extras.start_up:
        with _caches_in(folder) as root:
            compilations = fresh_runs(
                job, candidates, lambda alone, caches: run(alone, lambda: caches), root, stop
            )
    for step in _with_latencies(job, run, folder):
        if isinstance(step, Record):
            own = compilations.get(step.candidate, ())
            yield replace(step, compilations=(*own, *step.compilations))
        else:
            yield step


@contextmanager
def _caches_in(folder: Path) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="caches-", dir=folder, ignore_cleanup_errors=True) as name:
        yield Path(name)


def _with_latencies(job: Job, run: Run, folder: Path) -> Steps:
    if not (job.extras.cold_start or job.extras.warm_start):
        yield from run(job, lambda: None)
        return
    with _caches_in(folder) as root:
        if job.extras.warm_start:
            yield from _warm(job, run, root)
            return
        for record in run(job, lambda: Path(tempfile.mkdtemp(dir=root))):
            yield record if isinstance(record, Pause) else _with(record, {COLD: record.metrics.get(LATENCY)})


def _warm(job: Job, run: Run, caches: Path) -> Steps:
    protocol = replace(job.protocol, accuracy=False, performance=False)
    cold = {
        record.candidate: record.metrics.get(LATENCY)
        for record in run(replace(job, protocol=protocol), lambda: caches)
        if isinstance(record, Record)
    }
    for record in run(job, lambda: caches):
        if isinstance(record, Pause):
            yield record
            continue
        latencies = {COLD: cold.get(record.candidate), WARM: record.metrics.get(LATENCY)}
        yield _with(record, latencies)


def _with(record: Record, latencies: Mapping[str, Scalar]) -> Record:
    return replace(record, metrics={**record.metrics, **latencies})
