"""Measures a job in worker processes on this machine; sets their environment variables and logs."""

from __future__ import annotations

import errno
import json
import os
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

from harness.codec import to_json
from harness.schema import Environment, Failure, Job, Record, Status
from harness.worker.limits import CPUS
from harness.worker.status_page import Activity
from runner.engine import Gate, Place, Watcher
from runner.engine.compile_caches import Caches, with_starts
from runner.engine.host_process import HostPool
from runner.engine.job_run import JobRun, Reproduce, now
from runner.engine.processes import with_processes
from runner.engine.worker_process import WorkerProcess, was_shortened
from runner.engine.worker_start import ForkedStart, fresh_start
from runner.errors import UsageError, words_of
from runner.labels import reason
from runner.plan.allocators import library_of, malloc_settings
from runner.plan.environments.plan import split_candidate
from runner.plan.environments.probe import base_environment
from runner.plan.interpreter import worker_environment
from runner.store.invocation import program_facts
from runner.store.run_folder import by_hand

FOLDER = "envs"
DISK = (errno.ENOSPC, errno.EDQUOT, errno.EROFS)  # these end the run: no record can be written, either
LONG_LOG = "the job's log was longer than 64 MiB: its middle was cut out"
TAKING_TURNS = {"KMP_BLOCKTIME": "1"}
"""Idle threads of Intel's OpenMP spin for this many milliseconds. The default of 200 would take CPU time from
the environment worker whose turn it is."""


class Watching(Watcher, Protocol):
    """Receives the progress of a job: its rounds, and each worker's activity."""

    def activity(self, activity: Activity) -> None: ...


class Quiet:
    """A ``Watching`` that ignores everything."""

    def activity(self, activity: Activity) -> None: ...

    def rounds(self, done: int, pairs: Mapping[str, tuple[list[float], list[float]]]) -> None: ...


def measure_job(
    job: Job,
    candidates: tuple[str, ...],
    watch: Watching,
    stop: Callable[[], bool],
    *,
    log: Path,
    log_name: str,
    reproduce: Reproduce,
    **how: Any,
) -> Iterator[Record]:
    """The records of these candidates, as ``_measured`` makes them.

    If an exception of this program ends the job, the missing records say so, and the run goes on.
    """
    missing = list(candidates)
    try:
        for record in _measured(
            job, candidates, watch, stop, log=log, log_name=log_name, reproduce=reproduce, **how
        ):
            long = any(map(was_shortened, (log, *log.parent.glob(f"{FOLDER}/*/{log.name}"))))
            yield replace(record, notes=(*record.notes, LONG_LOG)) if long else record
            missing.remove(record.candidate)
    except UsageError:
        raise
    except Exception as error:
        if isinstance(error, OSError) and error.errno in DISK:
            raise
        _log_traceback(log)
        message = f"torchduet failed ({reason(words_of(error))}); the log has the traceback"
        failure = Failure(kind=type(error).__name__, message=message, phase="runner", log=log_name)
        for candidate in missing:
            again = reproduce(job, (candidate,))
            yield Record(
                job=job,
                candidate=candidate,
                status=Status.INFRA_ERROR,
                environment=dict(program_facts()),
                failure=failure,
                reproduce=again,
                ended=now(),
            )


def _log_traceback(log: Path) -> None:
    with suppress(OSError):
        log.parent.mkdir(parents=True, exist_ok=True)  # a model may have removed it
        with log.open("a", encoding="utf-8", errors="backslashreplace") as file:
            traceback.print_exc(file=file)


def _measured(
    job: Job,
    candidates: tuple[str, ...],
    watch: Watching,
    stop: Callable[[], bool],
    *,
    log: Path,
    log_name: str,
    reproduce: Reproduce,
    base: Mapping[str, str] = os.environ,
    pool: HostPool | None = None,
    allowance: Callable[[float], float] | None = None,
    cpus: tuple[int, ...] = (),
    gate: Gate | None = None,
) -> Iterator[Record]:
    """The records of these candidates. Workers write to ``log``; environment workers to files beside it.

    ``log_name`` is the log's name in records. A worker's environment variables are made from ``base``.
    With a ``pool``, workers are forked from its hosts. Repeated processes need different memory layouts,
    and environments need equal conditions; both use fresh processes instead. ``cpus`` are the only CPUs that
    the workers use; (): all of this process. The ``gate`` keeps the job apart from others.
    """
    beside = {one.name: _log_of(job, one, log.parent) for one in job.environments}
    logs = {"": log, **beside}
    folder_name = Path(log_name).parent
    names = {name: str(folder_name / path.relative_to(log.parent)) for name, path in beside.items()}
    place = Place(logs={"": log_name, **names}, folder=log.parent)
    if job.protocol.processes != 1 or job.environments:
        pool = None

    def run(part: Job, caches: Caches) -> Iterator[Record]:
        def launch(one: Job) -> WorkerProcess:
            name = one.environments[0].name if one.environments else ""
            folder = caches()
            variables = worker_environment(
                one.protocol.threads,
                base_environment(base) if one.environments else base,
                online=one.case.pretrained,
                preload=library_of(one.extras.allocator),
                malloc=malloc_settings(one.extras.allocator),
                # a cache folder for each environment: versions of torch cannot share compiled code
                caches=folder / name if folder is not None else None,
            )
            if one.environments:
                variables = {**TAKING_TURNS, **variables}
            if cpus:
                variables = {**variables, CPUS: ",".join(map(str, cpus))}
            pythons = (environment.python for environment in one.environments)
            start = fresh_start(*pythons)
            if pool is not None:
                start = ForkedStart(pool=pool, suite=one.case.suite, device=one.device)
            return WorkerProcess(start, variables, logs[name], watch.activity, one.protocol.max_memory_bytes)

        def measure(again: Job, left: tuple[str, ...]) -> Iterator[Record]:
            return JobRun(
                again,
                launch,
                watch,
                candidates=left,
                place=place,
                reproduce=reproduce,
                stop=stop,
                allowance=allowance,
                gate=gate,
            ).run()

        return with_processes(part, candidates, measure, stop)

    return with_starts(job, run, log.parent)


def _log_of(job: Job, environment: Environment, folder: Path) -> Path:
    """Makes the environment's folder with its job file and its log; returns the log's path."""
    place = folder / FOLDER / environment.name
    place.mkdir(parents=True, exist_ok=True)
    candidates = [split_candidate(job, candidate) for candidate in job.candidates]
    compilers = tuple(compiler for compiler, where in candidates if where.name == environment.name)
    alone = replace(job, candidates=compilers, environments=(environment,), unavailable={})
    job_file = place / "job.json"
    job_file.write_text(json.dumps(to_json(alone), indent=1), encoding="utf-8")
    log = place / "output.log"
    if not log.exists():
        text = f"# by hand: {by_hand(alone, job_file, environment.python)}\n"
        log.write_text(text, encoding="utf-8", errors="surrogateescape")
    return log
