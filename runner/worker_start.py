"""Two ways to start a worker: as a new interpreter, or forked from a host that has imported everything."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Protocol

from runner.host_process import Host, HostLost, HostPool, forking_works


class Process(Protocol):
    """What is needed of a process: ``subprocess.Popen`` has it."""

    pid: int
    returncode: int | None

    def poll(self) -> int | None: ...

    def wait(self, timeout: float | None = None) -> int: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """A started worker; ``release`` is to be called when it has ended."""

    process: Process
    release: Callable[[], None] = lambda: None


class Start(Protocol):
    """Starts a worker in ``folder`` with its output in ``log``; ``handed`` are its three descriptors."""

    def __call__(
        self, environment: Mapping[str, str], folder: Path, log: IO[bytes], handed: Sequence[int]
    ) -> Running: ...


def worker_command(python: str = sys.executable) -> list[str]:
    return [python, "-u", "-m", "harness.worker"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlainStart:
    """A new interpreter for each worker."""

    command: Sequence[str]

    def __call__(
        self, environment: Mapping[str, str], folder: Path, log: IO[bytes], handed: Sequence[int]
    ) -> Running:
        process = subprocess.Popen(
            [*self.command, "--pipes", ",".join(map(str, handed))],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            env=dict(environment),
            cwd=folder,
            pass_fds=tuple(handed),
            start_new_session=True,
        )
        return Running(process=process)


@dataclass(frozen=True, slots=True, kw_only=True)
class BareStart:
    """A new interpreter for each worker, which another watches: it ends all that the worker leaves behind."""

    python: str = sys.executable

    def __call__(
        self, environment: Mapping[str, str], folder: Path, log: IO[bytes], handed: Sequence[int]
    ) -> Running:
        host = Host(self.python, environment, bare=True)
        try:
            process = host.spawn("", folder, [*handed, log.fileno()])
        except HostLost:
            host.close()
            return PlainStart(command=worker_command(self.python))(environment, folder, log, handed)
        return Running(process=process, release=host.close)


def fresh_start() -> Start:
    """A worker that shares nothing with an earlier one."""
    return BareStart() if forking_works() else PlainStart(command=worker_command())


@dataclass(frozen=True, slots=True, kw_only=True)
class ForkedStart:
    """A fork of a host; of a second host when the first is lost, and a new interpreter when that is, too."""

    pool: HostPool
    suite: str
    python: str = sys.executable

    def __call__(
        self, environment: Mapping[str, str], folder: Path, log: IO[bytes], handed: Sequence[int]
    ) -> Running:
        for _ in range(2):
            host = self.pool.take(self.python, environment)
            try:
                process = host.spawn(self.suite, folder, [*handed, log.fileno()])
            except HostLost:
                host.close()
                continue
            return Running(process=process, release=lambda host=host: self._release(environment, host))  # type: ignore[misc]
        return PlainStart(command=worker_command(self.python))(environment, folder, log, handed)

    def _release(self, environment: Mapping[str, str], host: Host) -> None:
        self.pool.give_back(self.python, environment, host)
