"""Where the workers of a job in several environments are started: each in an interpreter of its own, all new.

A worker forked from a process that has imported everything would differ from a new one
in where its memory lies; so that environments are compared alike, none is forked.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Protocol

from harness.codec import to_json
from harness.schema import Job, Record
from harness.status_page import Activity
from runner.allocators import library_of
from runner.environments.plan import split_candidate
from runner.environments.probe import base_environment
from runner.environments.run import EnvironmentsRun
from runner.execute import Watcher
from runner.host_process import forking_works
from runner.replication import with_processes
from runner.run_folder import by_hand
from runner.starts import Caches, with_starts
from runner.worker_process import WorkerProcess, worker_environment
from runner.worker_start import BareStart, PlainStart, Start, worker_command

FOLDER = "envs"
IDLE_MS = "1"
"""How long threads of Intel's OpenMP spin when there is nothing to do: by default so long (200 ms) that
they would take the CPU from the environment whose turn it is."""


class Watching(Watcher, Protocol):
    """Who wants to know what the workers are at."""

    def activity(self, activity: Activity) -> None: ...


def environment_records(
    job: Job,
    candidates: tuple[str, ...],
    watch: Watching,
    stop: Callable[[], bool],
    *,
    folder: Path,
    folder_name: str,
    allowance: Callable[[float], float] | None = None,
    base: Mapping[str, str] = os.environ,
) -> Iterator[Record]:
    """Measures in worker processes of this machine, one for each environment, with a log for each.

    ``folder`` is the job's; ``folder_name`` is what records call it.
    """
    places = {one.name: _place(job, one.name, folder) for one in job.environments}
    logs = {name: f"{folder_name}/{place.relative_to(folder)}" for name, place in places.items()}

    def run(part: Job, caches: Caches) -> Iterator[Record]:
        def launch(one: Job) -> WorkerProcess:
            environment = one.environments[0]
            own = caches()
            settings = worker_environment(
                one.protocol.threads,
                base_environment(base),
                online=one.case.pretrained,
                preload=library_of(one.extras.allocator),
                # what one torch has compiled is nothing to another
                caches=own / environment.name if own is not None else None,
            )
            settings.setdefault("KMP_BLOCKTIME", IDLE_MS)
            log, limit = places[environment.name], one.protocol.max_memory_bytes
            return WorkerProcess(start_in(environment.python), settings, log, watch.activity, limit)

        def measure(again: Job, left: tuple[str, ...]) -> Iterator[Record]:
            return EnvironmentsRun(
                again,
                launch,
                watch,
                candidates=left,
                logs=logs,
                folder=folder,
                stop=stop,
                allowance=allowance,
            ).run()

        return with_processes(part, candidates, measure, stop)

    return with_starts(job, run, folder)


def start_in(python: str) -> Start:
    """Starts workers as new processes of that interpreter."""
    return BareStart(python=python) if forking_works() else PlainStart(command=worker_command(python))


def _place(job: Job, name: str, folder: Path) -> Path:
    """Makes the environment's folder with its job file; returns its log, which says how to run it by hand."""
    place = folder / FOLDER / name
    place.mkdir(parents=True, exist_ok=True)
    mine = [split_candidate(job, candidate) for candidate in job.candidates]
    compilers = tuple(compiler for compiler, environment in mine if environment.name == name)
    environment = next(one for one in job.environments if one.name == name)
    alone = replace(job, candidates=compilers, environments=(environment,), unavailable={})
    job_file = place / "job.json"
    job_file.write_text(json.dumps(to_json(alone), indent=1), encoding="utf-8")
    log = place / "output.log"
    if not log.exists():
        text = f"# by hand: {by_hand(alone, job_file, environment.python)}\n"
        log.write_text(text, encoding="utf-8", errors="surrogateescape")
    return log
