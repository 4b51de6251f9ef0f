"""How many jobs prepare side by side on one machine: the default, and what is wrong with too many."""

from __future__ import annotations

from collections.abc import Sequence

from harness.devices import of
from harness.hardware.cpus import usable_cpus
from harness.schema import Job
from runner.engine.executors.memory import available_bytes
from runner.plan.compilers import autotunes

MOST_AHEAD = 32
CPUS_A_JOB = 1.5  # that a compilation keeps busy
BYTES_A_JOB = 3e9


def jobs_ahead(jobs: Sequence[Job], cpus: int | None = None, memory_bytes: float | None = None) -> int:
    """How many jobs prepare side by side, by default.

    1 where compilation latencies are asked for, where a compiler chooses kernels by measuring them, and on
    accelerators, whose memory the jobs would share; else as many as keep the CPUs busy, ``MOST_AHEAD`` at
    most, if each open job can have ``BYTES_A_JOB`` and its threads have CPUs of their own. Without
    ``--threads`` a job has a thread for every CPU.
    """
    if any(map(_alone, jobs)):
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


def _alone(job: Job) -> bool:
    tuned = autotunes(job.candidates, job.options.inductor_config)
    return tuned or job.extras.times_compiling or of(job.device).accelerated


def _threads(jobs: Sequence[Job], cpus: int) -> int:
    return max((job.protocol.threads or cpus for job in jobs), default=1)
