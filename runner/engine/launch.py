"""Measures a job in worker processes on this machine; sets their environment variables and logs."""

from __future__ import annotations

import errno
import os
import shutil
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from harness.protocol import AUTO
from harness.schema import Environment, Failure, Job, Record
from harness.worker.limits import CPUS, GLIBC_SETTINGS
from runner.engine import JobContext, Place
from runner.engine.experiments import Attempt, attempted, attempts, next_attempt
from runner.engine.job_run import JobRun
from runner.engine.worker_process import WorkerProcess, was_shortened
from runner.engine.worker_start import ForkedStart, HostPool, Start, fresh_start
from runner.errors import UsageError, words_of
from runner.names import reason
from runner.plan.environments.spec import split_candidate
from runner.plan.interpreter import base_environment, worker_environment
from runner.store.invocation import program_facts
from runner.store.run_folder import write_case

FOLDER = "envs"
DISK = (errno.ENOSPC, errno.EDQUOT, errno.EROFS)  # these end the run: no record can be written, either
LONG_LOG = "the job's log was longer than 64 MiB: its middle was cut out"
TAKING_TURNS = {"KMP_BLOCKTIME": "1"}
"""Idle threads of Intel's OpenMP spin for this many milliseconds. The default of 200 would take CPU time from
the environment worker whose turn it is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Workers:
    """How the workers of a job start. Their environment variables are made from ``base``.

    With a ``pool``, workers are forked from its hosts. ``cpus`` are the only CPUs that the workers use;
    (): all of this process.
    """

    base: Mapping[str, str] = field(default_factory=lambda: os.environ)
    pool: HostPool | None = None
    cpus: tuple[int, ...] = ()

    def of(self, attempt: Attempt) -> Workers:
        """Without the pool, where a number of processes was asked for, or environments need equal conditions.

        Those of ``auto`` are forked: their times vary as those of fresh processes do (results/forked-cpu).
        """
        job = attempt.job
        fixed = job.protocol.performance and job.protocol.processes not in (1, AUTO)
        return replace(self, pool=None) if fixed or job.extras.times_compiling or job.environments else self

    def start(self, job: Job) -> Start:
        if self.pool is not None:
            return ForkedStart(pool=self.pool, suite=job.case.suite, case=job.case.name, device=job.device)
        return fresh_start(*(environment.python for environment in job.environments))

    def variables(self, job: Job, caches: Path | None) -> dict[str, str]:
        variables = worker_environment(
            job.protocol.threads,
            base_environment(self.base) if job.environments else self.base,
            online=job.case.pretrained,
            malloc={} if job.extras.allocator == "system" else GLIBC_SETTINGS,
            caches=caches,
        )
        turns = TAKING_TURNS if job.environments else {}
        cpus = {CPUS: ",".join(map(str, self.cpus))} if self.cpus else {}
        return {**turns, **variables, **cpus}


def measure_job(job: Job, context: JobContext, log: Path, workers: Workers | None = None) -> Iterator[Record]:
    """All attempts of a job, one after the other: the records of its processes."""
    records: list[Record] = []
    for attempt in attempts(next_attempt, job, records):
        if context.stop():
            return
        for record in measure(attempt, records, context, log, workers):
            records.append(record)
            yield record


def measure(
    attempt: Attempt,
    records: Sequence[Record],
    context: JobContext,
    log: Path,
    workers: Workers | None = None,
) -> Iterator[Record]:
    """The records of an attempt. Workers write to ``log``; environment workers beside it.

    ``records``: those of the job so far. ``context.place`` names the log. If an exception of this program
    ends the attempt, the missing records say so, and the run goes on.
    """
    missing = list(attempt.candidates)
    try:
        for record in _measured(attempt, records, context, log, (workers or Workers()).of(attempt)):
            long = any(map(was_shortened, (log, *log.parent.glob(f"{FOLDER}/*/{log.name}"))))
            yield replace(record, notes=(*record.notes, LONG_LOG)) if long else record
            if record.candidate in missing:
                missing.remove(record.candidate)
    except UsageError:
        raise
    except Exception as error:
        if isinstance(error, OSError) and error.errno in DISK:
            raise
        _log_traceback(log)
        message = f"torchduet failed ({reason(words_of(error))}); the log has the traceback"
        log_name = context.place.logs[""]
        failure = Failure(kind=type(error).__name__, message=message, phase="runner", log=log_name)
        for candidate in missing:
            lost = attempt.lost(candidate, failure, context.reproduce(attempt.job, (candidate,)))
            yield replace(lost, environment=dict(program_facts()))


def _log_traceback(log: Path) -> None:
    with suppress(OSError):
        log.parent.mkdir(parents=True, exist_ok=True)  # a model may have removed it
        with log.open("a", encoding="utf-8", errors="backslashreplace") as file:
            traceback.print_exc(file=file)


def _measured(
    attempt: Attempt, records: Sequence[Record], context: JobContext, log: Path, workers: Workers
) -> Iterator[Record]:
    job = attempt.job
    logs = {"": log, **{env.name: _log_of(job, env, log.parent) for env in job.environments}}
    folder = Path(context.place.logs[""]).parent
    names = {env: str(folder / path.relative_to(log.parent)) for env, path in logs.items() if env}
    place = Place(logs={**context.place.logs, **names}, folder=log.parent)
    own = {variable: log.parent / name for variable, name in attempt.folders.items()}
    for left in own.values():  # by an attempt that was killed
        shutil.rmtree(left, ignore_errors=True)

    def run(part: Job, candidates: tuple[str, ...], caches: Path | None) -> Iterator[Record]:
        def launch(job: Job) -> WorkerProcess:
            env = job.environments[0].name if job.environments else ""
            # a cache folder for each environment: versions of torch cannot share compiled code
            variables = workers.variables(job, caches / env if caches is not None else None)
            variables |= {variable: str(path) for variable, path in own.items()}
            memory = job.protocol.max_memory_bytes
            return WorkerProcess(workers.start(job), variables, logs[env], context.doing, memory)

        return JobRun(part, launch, replace(context, candidates=candidates, place=place)).run()

    return attempted(attempt, records, run, log.parent)


def _log_of(job: Job, environment: Environment, folder: Path) -> Path:
    """Makes the environment's folder with its job file and its log; returns the log's path."""
    candidates = [split_candidate(job, candidate) for candidate in job.candidates]
    compilers = tuple(compiler for compiler, where in candidates if where.name == environment.name)
    alone = replace(job, candidates=compilers, environments=(environment,), unavailable={})
    return write_case(folder / FOLDER / environment.name, alone, python=environment.python)
