"""Checks, before anything is measured, whether this machine can run the given settings.

The parent does not import torch. A worker's interpreter answers where torch is needed.
"""

from __future__ import annotations

from collections.abc import Sequence

from harness.devices import of
from harness.hardware.cpus import usable_cpus
from harness.schema import Job
from harness.settings import is_own_model
from harness.shapes.sizes import largest_case
from runner.errors import UsageError
from runner.labels import counted
from runner.plan.compilers import LEAVE_OUT, with_availability
from runner.plan.config import RunConfig
from runner.plan.probe import asking_for, limit_for, missing_devices, what_is_wrong

WHERE_IT_BEGAN = "go on where the run began, or on a machine like it"


def possible_here(config: RunConfig, jobs: tuple[Job, ...], *, instead: str = LEAVE_OUT) -> tuple[Job, ...]:
    """The jobs, with what is unavailable here. ``instead``: the advice where a compiler cannot be used."""
    check_hardware(jobs)
    if not config.environments:
        jobs = with_availability(jobs, asking_for(jobs), skip=config.skip_unavailable, instead=instead)
    check_jobs(jobs)
    return jobs


def check_hardware(jobs: Sequence[Job], *, instead: str = "use --devices=cpu") -> None:
    """``UsageError`` if this machine lacks the CPUs or the devices of a job. ``instead``: the advice then."""
    for job in jobs:
        check_threads(job, "--sweep" if "threads" in job.case.at else "--threads")
    ours = [job for job in jobs if not job.environments]  # an environment's torch answers for its devices
    check_devices(list(dict.fromkeys(job.device for job in ours)), instead)


def check_threads(job: Job, flag: str) -> None:
    """Raises ``UsageError`` for more threads than usable CPUs: their waiting times would be measured."""
    threads, cpus = job.protocol.threads, len(usable_cpus())
    if threads is not None and threads > cpus:
        raise UsageError(f"{flag}: {threads} is more than the {counted(cpus, 'usable CPU')} of this machine")


def check_devices(devices: Sequence[str], instead: str = "use --devices=cpu") -> None:
    """Raises ``UsageError`` for a device that is not there. Asks a worker's torch, except for the CPU."""
    wanted = [device for device in devices if of(device).accelerated]
    for device, why in missing_devices(wanted).items() if wanted else ():
        raise UsageError(f"--devices: {device} is not there ({why}); {instead}")


def check_jobs(jobs: Sequence[Job]) -> None:
    """``UsageError`` for a model or function of the user's own, or a setting, that no worker can use."""
    own = {  # with --shapes, a process builds the largest size
        (case.suite, case.mode): largest_case(case, sizes) if sizes else case
        for case, sizes in ((job.case, job.extras.shapes) for job in jobs if is_own_model(job.case.suite))
    }
    settings = tuple(dict.fromkeys(text for job in jobs for text in job.options.inductor_config))
    optimizers = [job.protocol.optimizer for job in jobs if is_own_model(job.protocol.optimizer)]
    functions = {"--optimizer": optimizers[0]} if optimizers else {}
    if own or settings or functions:
        limit_s = limit_for(jobs[0].protocol)
        python = next((environment.python for environment in jobs[0].environments), None)
        if why := what_is_wrong(tuple(own.values()), settings, functions, python, limit_s=limit_s):
            raise UsageError(why)
