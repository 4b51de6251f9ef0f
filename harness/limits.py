"""What a worker may take of the machine, set by itself before anything else."""

from __future__ import annotations

import contextlib
import resource
from pathlib import Path

from harness.schema import Job


def limit_memory(job: Job) -> None:
    """Makes this process the first that the system ends for want of memory, and sets ``--max-memory``.

    The limit is on the data segment (heap and private mappings), so that an allocation beyond
    it fails with an error that names the phase. Device drivers map far more than they use:
    there the runner alone watches what is resident.
    """
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000", encoding="ascii")
    most = job.protocol.max_memory_bytes
    if most is not None and job.device == "cpu":
        _, hard = resource.getrlimit(resource.RLIMIT_DATA)
        soft = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))
