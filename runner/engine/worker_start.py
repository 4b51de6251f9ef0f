"""Two ways to start a worker: as a new interpreter, or forked from a host."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO, Protocol

from runner.engine.host_process import Host, HostLost, HostPool, forking_works
from runner.plan.interpreter import worker_command


class Process(Protocol):
    """The part of ``subprocess.Popen`` that the parent needs."""

    pid: int
    returncode: int | None

    def poll(self) -> int | None: ...

    def wait(self, timeout: float | None = None) -> int: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """A started worker. The caller calls ``release`` after the worker has ended."""

    process: Process
    release: Callable[[], None] = lambda: None


class Start(Protocol):
    """Starts a worker in ``folder``; ``descriptors`` are its requests, replies and status page."""

    def __call__(
        self, environment: Mapping[str, str], folder: Path, log: IO[bytes], descriptors: Sequence[int]
    ) -> Running: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class PlainStart:
    """A new interpreter for each worker."""

    command: Sequence[str]

    def __call__(
        self, environment: Mapping[str, str], folder: Path, log: IO[bytes], descriptors: Sequence[int]
    ) -> Running:
        process = subprocess.Popen(
            [*self.command, "--pipes", ",".join(map(str, descriptors))],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            env=dict(environment),
            cwd=folder,
            pass_fds=tuple(descriptors),
            start_new_session=True,
        )
        return Running(process=process)


@dataclass(frozen=True, slots=True, kw_only=True)
class ForkedStart:
    """Forks workers from a host of ``pool``, which has imported torch; without a pool, from a bare host.

    A host kills every process that its worker leaves behind. If hosts fail, a new interpreter is started.
    """

    pool: HostPool | None = None
    suite: str = ""
    python: str = sys.executable
    device: str = "cpu"

    def __call__(
        self, environment: Mapping[str, str], folder: Path, log: IO[bytes], descriptors: Sequence[int]
    ) -> Running:
        for _ in range(1 if self.pool is None else 2):
            if self.pool is None:
                host = Host(self.python, environment, bare=True)
            else:
                host = self.pool.take(self.python, environment)
            try:
                process = host.spawn(self.suite, folder, [*descriptors, log.fileno()], self.device)
            except HostLost:
                host.close()
                continue
            return Running(process=process, release=partial(self._release, environment, host))
        return PlainStart(command=worker_command(self.python))(environment, folder, log, descriptors)

    def _release(self, environment: Mapping[str, str], host: Host) -> None:
        if self.pool is None:
            host.close()
        else:
            self.pool.give_back(self.python, environment, host)


def fresh_start(python: str = sys.executable) -> Start:
    """A start whose workers share no process with earlier workers."""
    return ForkedStart(python=python) if forking_works() else PlainStart(command=worker_command(python))
