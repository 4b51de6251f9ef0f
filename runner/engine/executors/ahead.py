"""How many jobs prepare side by side on one machine, by default and by its free memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from harness.devices import of
from harness.hardware.cpus import usable_cpus
from harness.schema import Job
from runner.plan.compilers import autotunes

MOST_AHEAD = 32
CPUS_A_JOB = 1.5  # that a compilation keeps busy
BYTES_A_JOB = 3e9
LEAST_BYTES = 2e9  # for a job before any job was seen: torch, a model of 100 million parameters, a compiler
GROWTH = 2.0  # a job that is still preparing takes up to this many times the mean of the open jobs


def available_bytes() -> int:
    """The memory that the system can give to new processes without swapping."""
    import psutil  # imported here, so that --help does not need it

    return int(psutil.virtual_memory().available)


class FreeMemory:
    """Judges from the memory that the jobs of this run have taken so far. ``limit``: the most of a worker."""

    def __init__(self, limit: int | None = None, available: Callable[[], int] = available_bytes) -> None:
        self._limit = limit
        self._available = available
        self._at_start = available()
        self._most = 0.0  # bytes a job

    def suffices(self, opened: int) -> bool:
        """Whether one more job fits beside ``opened`` others.

        Jobs that have just begun hold less than they will take: each open job counts with ``_most`` at least.
        """
        free = self._available()
        self._at_start = max(self._at_start, free)
        self._most = max(self._most, (self._at_start - free) / max(1, opened))
        left = min(free, self._at_start - opened * max(LEAST_BYTES, self._most))
        return left >= (self._limit or max(LEAST_BYTES, GROWTH * self._most))


def jobs_ahead(jobs: Sequence[Job], cpus: int | None = None, memory_bytes: float | None = None) -> int:
    """How many jobs prepare side by side, by default.

    1 where compilation latencies are asked for, where a compiler chooses kernels by measuring them, and on
    accelerators, whose memory the jobs would share; else as many as keep the CPUs busy, ``MOST_AHEAD`` at
    most, if each open job can have ``BYTES_A_JOB`` and its threads have CPUs of their own. Without
    ``--threads`` a job has a thread for every CPU.
    """
    for job in jobs:
        tuned = autotunes(job.candidates, job.options.inductor_config)
        if tuned or job.extras.times_compiling or of(job.device).accelerated:
            return 1
    cpus = cpus or len(usable_cpus())
    memory = available_bytes() if memory_bytes is None else memory_bytes
    share = max(CPUS_A_JOB, _threads(jobs, cpus))
    return max(1, min(MOST_AHEAD, int(cpus / share), int(memory // (2 * BYTES_A_JOB))))


def crowded(jobs: Sequence[Job], ahead: int, cpus: int | None = None) -> str:
    """A sentence if jobs that prepare side by side on CPUs have more threads than there are CPUs; else ""."""
    here = [job for job in jobs if not of(job.device).accelerated]
    cpus = cpus or len(usable_cpus())
    threads = _threads(here, cpus)
    if ahead < 2 or not here or ahead * threads <= cpus:
        return ""
    fewer = cpus // ahead
    instead = f"--threads={fewer}" if fewer else f"--prepare-ahead={cpus}"
    return (
        f"{ahead} jobs that prepare side by side have {threads} threads each on {cpus} CPUs: their steps "
        f"wait for each other, and may take twenty times as long as alone; {instead} prevents this"
    )


def _threads(jobs: Sequence[Job], cpus: int) -> int:
    return max((job.protocol.threads or cpus for job in jobs), default=1)
