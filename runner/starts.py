"""Compilation from cold and from warm caches: ``--cold-start-latency`` and ``--warm-start-latency``.

Cold: every worker begins with a compile cache folder of its own that is empty.
Candidates that share a worker share what the earlier ones left there, as far as
their compilers see fit; ``--isolate`` parts them.

Warm: a worker that is thrown away compiles every candidate first, into a folder
that was empty; its latency is the cold one. Then the job is measured by workers
that find this folder full. ``compilation_latency_s`` of the record is then the warm one.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from harness.schema import Job, Record, Scalar

LATENCY = "compilation_latency_s"
COLD, WARM = "cold_compilation_latency_s", "warm_compilation_latency_s"

Caches = Callable[[], Path | None]
"""The cache folder for the next worker; None: the person's own, as it is."""

Run = Callable[[Job, Caches], Iterator[Record]]
"""Measures a job by workers that have these caches."""


def cache_settings(caches: Path | None) -> dict[str, str]:
    """Environment variables that keep torch's compile caches in this folder."""
    if caches is None:
        return {}
    return {
        "TORCHINDUCTOR_CACHE_DIR": str(caches / "inductor"),
        "TRITON_CACHE_DIR": str(caches / "triton"),
    }


def with_starts(job: Job, run: Run, folder: Path) -> Iterator[Record]:
    """The job's records, with the latencies asked for. Caches live in ``folder`` until the job ends."""
    if not (job.extras.cold_start or job.extras.warm_start):
        yield from run(job, lambda: None)
        return
    with tempfile.TemporaryDirectory(prefix="caches-", dir=folder, ignore_cleanup_errors=True) as made:
        root = Path(made)
        if job.extras.warm_start:
            yield from _warm(job, run, root)
            return
        for record in run(job, lambda: Path(tempfile.mkdtemp(dir=root))):
            yield _with(record, {COLD: record.metrics.get(LATENCY)})


def _warm(job: Job, run: Run, caches: Path) -> Iterator[Record]:
    protocol = replace(job.protocol, accuracy=False, performance=False)
    cold = {
        record.candidate: record.metrics.get(LATENCY)
        for record in run(replace(job, protocol=protocol), lambda: caches)
    }
    for record in run(job, lambda: caches):
        latencies = {COLD: cold.get(record.candidate), WARM: record.metrics.get(LATENCY)}
        yield _with(record, latencies)


def _with(record: Record, latencies: Mapping[str, Scalar]) -> Record:
    return replace(record, metrics={**record.metrics, **latencies})
