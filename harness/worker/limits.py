"""A worker's resources: threads, heap and memory. No torch at import, because the runner uses it, too."""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
import resource
from collections.abc import Iterator
from pathlib import Path

from harness.devices import of
from harness.schema import Job

THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS")
"""OpenMP and MKL read them when they are loaded."""

CPUS = "DUET_CPUS"
"""Environment variable: the numbers of the CPUs of a worker that runs beside others, separated by commas."""

# By default glibc returns freed memory to the system and requests it again in every step, which changes the
# time of an eager training step by a quarter. These settings keep the heap. See docs/BIAS.md.
GLIBC_SETTINGS = {
    "MALLOC_TRIM_THRESHOLD_": str(1 << 34),
    "MALLOC_TOP_PAD_": str(1 << 26),
    "MALLOC_MMAP_THRESHOLD_": str(1 << 34),
}


def thread_variables(threads: int | None) -> dict[str, str]:
    """The environment variables of a worker with ``threads`` threads; {} for None (torch's choice)."""
    return {} if threads is None else dict.fromkeys(THREAD_VARIABLES, str(threads))


def use_cpus() -> None:
    """Restricts this process, and those that it starts, to the CPUs of the variable ``CPUS``, if it is set.

    Call it before torch is imported: OpenMP counts the CPUs then.
    """
    numbers = os.environ.get(CPUS, "")
    if numbers and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {int(number) for number in numbers.split(",")})


@contextlib.contextmanager
def importing() -> Iterator[None]:
    """Turns garbage collection off during imports, where it takes a fifth of the time."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def set_threads(threads: int | None) -> None:
    """Sets torch's threads in this process: the model's code may have changed them."""
    if threads is not None:
        importlib.import_module("torch").set_num_threads(threads)


def limit_memory(job: Job) -> None:
    """Sets the limit of ``--max-memory``, and makes this process the first victim of the OOM killer.

    The limit is on the data segment (heap and private mappings), so that an allocation above it raises an
    error in the phase that allocates. Device drivers map far more memory than they use: on accelerators,
    only the runner checks the limit, by resident memory.
    """
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000", encoding="ascii")
    most = job.protocol.max_memory_bytes
    if most is not None and not of(job.device).accelerated:
        _, hard = resource.getrlimit(resource.RLIMIT_DATA)
        soft = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))
