"""Two ways to start a worker: as a new interpreter, or forked from a host (``harness.worker.host``)."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO

from runner.plan.interpreter import worker_command

START_S = 120.0
GOODBYE_S = 1.0
MESSAGE = 1 << 16


def forking_works() -> bool:
    """Whether this system can fork workers and watch them: Linux, with Python's pidfd."""
    return sys.platform.startswith("linux") and hasattr(os, "pidfd_open") and hasattr(socket, "send_fds")


class HostLost(Exception):
    """The host has died or does not answer. A new host can be started."""


class ForkedProcess:
    """A worker that a host forked, with the interface of ``subprocess.Popen``."""

    def __init__(self, pid: int, host: Host) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self._host = host

    def poll(self) -> int | None:
        """The exit code in Popen's form, or None while the worker runs."""
        return self._ended_within(0.0)

    def wait(self, timeout: float | None = None) -> int:
        """Waits for the end. Raises ``subprocess.TimeoutExpired`` after ``timeout`` seconds."""
        code = self._ended_within(timeout)
        if code is None:
            raise subprocess.TimeoutExpired(["forked worker"], timeout or 0.0)
        return code

    def _ended_within(self, timeout: float | None) -> int | None:
        if self.returncode is not None:
            return self.returncode
        with contextlib.suppress(HostLost):
            message = self._host.receive(START_S if timeout is None else timeout)
            if message is not None or timeout is not None:
                self.returncode = None if message is None else int(message["ended"])
                return self.returncode
        # the host is lost, or hangs: it should tell the end of a killed worker. Its end kills a worker
        self._host.close()
        self.returncode = -signal.SIGKILL
        return self.returncode


class Host:
    """One running host. It serves one worker at a time. A ``bare`` host has not imported torch."""

    def __init__(self, python: str, environment: Mapping[str, str], *, bare: bool = False) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                [python, "-m", "harness.worker.host", "--socket", str(theirs.fileno()), *(["--bare"] * bare)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env=dict(environment),
                pass_fds=(theirs.fileno(),),
                start_new_session=True,
            )
        self._socket = ours

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def spawn(
        self, suite: str, case: str, folder: Path, descriptors: Sequence[int], device: str
    ) -> ForkedProcess:
        """Forks a worker in ``folder`` with these descriptors (requests, replies, status page, log).

        The worker opens ``device`` first. Raises ``HostLost`` if the host cannot fork it.
        """
        request = json.dumps({"spawn": str(folder), "suite": suite, "case": case, "device": device}).encode()
        try:
            socket.send_fds(self._socket, [request], list(descriptors))
        except OSError:
            raise HostLost from None
        message = self.receive(START_S)
        if message is None or "pid" not in message:
            raise HostLost
        return ForkedProcess(int(message["pid"]), self)

    def receive(self, timeout: float | None) -> dict[str, int] | None:
        """The host's next message; None after ``timeout`` seconds. Raises ``HostLost``."""
        if not select.select([self._socket], [], [], timeout)[0]:
            return None
        try:
            data = self._socket.recv(MESSAGE)
        except OSError:
            data = b""
        if not data:
            raise HostLost
        message: dict[str, int] = json.loads(data)
        return message

    def close(self) -> None:
        """Ends the host and its worker."""
        self._socket.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(GOODBYE_S)
        self._process.kill()
        self._process.wait()


class HostPool(contextlib.AbstractContextManager["HostPool"]):
    """Free hosts, by interpreter and environment variables. Threads may share it.

    The system ends a host with the thread that has started it. One thread, which lives as long, starts all.
    """

    def __init__(self, most: int = 2) -> None:
        self._starter = ThreadPoolExecutor(max_workers=1)
        self._free: list[tuple[tuple[str, frozenset[tuple[str, str]]], Host]] = []
        self._lock = threading.Lock()
        self._most = most

    def __exit__(self, *_: object) -> None:
        with self._lock:
            for _, host in self._free:
                host.close()
            self._free.clear()
        self._starter.shutdown()

    def take(self, python: str, environment: Mapping[str, str]) -> Host:
        """A host with this interpreter and environment. The caller gives it back or closes it."""
        key = (python, frozenset(environment.items()))
        with self._lock:
            for place, (made_for, host) in enumerate(self._free):
                if made_for == key:
                    del self._free[place]
                    if host.alive:
                        return host
                    host.close()
                    break
        return self._starter.submit(Host, python, environment).result()

    def give_back(self, python: str, environment: Mapping[str, str], host: Host) -> None:
        """Keeps the host for the next worker. Closes the hosts unused for longest if there are too many."""
        with self._lock:
            self._free.append(((python, frozenset(environment.items())), host))
            surplus = self._free[: -self._most]
            del self._free[: -self._most]
        for _, old in surplus:
            old.close()


Running = tuple[ForkedProcess | subprocess.Popen[bytes], Callable[[], None]]
"""A started worker, and what the caller calls after the worker has ended."""

Start = Callable[[Mapping[str, str], Path, IO[bytes], Sequence[int]], Running]
"""``start(variables, folder, log, descriptors of requests, replies and status page)`` starts a worker."""


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
        return process, lambda: None


@dataclass(frozen=True, slots=True, kw_only=True)
class ForkedStart:
    """Forks workers from a host of ``pool``, which has imported torch; without a pool, from a bare host.

    A host kills every process that its worker leaves behind. If hosts fail, a new interpreter is started.
    """

    pool: HostPool | None = None
    suite: str = ""
    case: str = ""
    python: str = sys.executable
    device: str = "cpu"

    def __call__(
        self, environment: Mapping[str, str], folder: Path, log: IO[bytes], descriptors: Sequence[int]
    ) -> Running:
        release: Callable[[], None]
        for _ in range(1 if self.pool is None else 2):
            if self.pool is None:
                host = Host(self.python, environment, bare=True)
                release = host.close
            else:
                host = self.pool.take(self.python, environment)
                release = partial(self.pool.give_back, self.python, environment, host)
            try:
                process = host.spawn(self.suite, self.case, folder, [*descriptors, log.fileno()], self.device)
            except HostLost:
                host.close()
                continue
            return process, release
        return PlainStart(command=worker_command(self.python))(environment, folder, log, descriptors)


def fresh_start(python: str = sys.executable) -> Start:
    """A start whose workers share no process with earlier workers."""
    return ForkedStart(python=python) if forking_works() else PlainStart(command=worker_command(python))
