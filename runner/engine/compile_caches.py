"""Compilation from cold and from warm caches: ``--cold-start-latency`` and ``--warm-start-latency``.

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
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from harness.schema import Job, Record, Scalar
from runner.engine import Pause

LATENCY = "compilation_latency_s"
COLD, WARM = "cold_compilation_latency_s", "warm_compilation_latency_s"

Caches = Callable[[], Path | None]
"""Returns the cache folder for the next worker; None: the user's own cache."""

Steps = Iterator[Record | Pause]
Run = Callable[[Job, Caches], Steps]
"""Measures a job with workers that use these caches."""


def with_starts(job: Job, run: Run, folder: Path) -> Steps:
    """The job's records, with the requested latencies. The caches are in ``folder`` until the job ends."""
    if not (job.extras.cold_start or job.extras.warm_start):
        yield from run(job, lambda: None)
        return
    with tempfile.TemporaryDirectory(prefix="caches-", dir=folder, ignore_cleanup_errors=True) as name:
        root = Path(name)
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
