"""The parent's handle on a host (``harness.host``), which forks workers; and on the workers it forked."""

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
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing_extensions import Self  # typing's own from Python 3.11

START_S = 120.0
GOODBYE_S = 1.0
MESSAGE = 1 << 16


def forking_works() -> bool:
    """Whether this system can fork workers and watch them: Linux, with Python's pidfd."""
    return sys.platform.startswith("linux") and hasattr(os, "pidfd_open") and hasattr(socket, "send_fds")


class HostLost(Exception):
    """The host has died or does not answer; another can be started."""


class ForkedProcess:
    """A worker that a host forked, used as a ``subprocess.Popen`` is."""

    def __init__(self, pid: int, host: Host) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self._host = host

    def poll(self) -> int | None:
        """The exit code as Popen gives it, or None while it runs."""
        return self._ended_within(0.0)

    def wait(self, timeout: float | None = None) -> int:
        """Waits for the end. ``subprocess.TimeoutExpired`` when it takes longer."""
        code = self._ended_within(timeout)
        if code is None:
            raise subprocess.TimeoutExpired(["forked worker"], timeout or 0.0)
        return code

    def _ended_within(self, timeout: float | None) -> int | None:
        if self.returncode is None:
            try:
                message = self._host.receive(timeout)
                self.returncode = None if message is None else int(message["ended"])
            except HostLost:
                # the system ends a worker whose host has died
                self.returncode = -signal.SIGKILL
        return self.returncode


class Host:
    """One running host. It serves one worker at a time. A ``bare`` one has imported nothing."""

    def __init__(self, python: str, environment: Mapping[str, str], *, bare: bool = False) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                [python, "-m", "harness.host", "--socket", str(theirs.fileno()), *(["--bare"] * bare)],
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

    def spawn(self, suite: str, folder: Path, descriptors: Sequence[int]) -> ForkedProcess:
        """A worker in ``folder`` on these descriptors (requests, replies, status page, log).

        ``HostLost`` when there is none to be had from this host.
        """
        request = json.dumps({"spawn": str(folder), "suite": suite}).encode()
        try:
            socket.send_fds(self._socket, [request], list(descriptors))
        except OSError:
            raise HostLost from None
        message = self.receive(START_S)
        if message is None or "pid" not in message:
            raise HostLost
        return ForkedProcess(int(message["pid"]), self)

    def receive(self, timeout: float | None) -> dict[str, int] | None:
        """The host's next message; None when none came in time. ``HostLost`` when it is gone."""
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
        """Ends the host, and with it whatever worker it still has."""
        self._socket.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(GOODBYE_S)
        self._process.kill()
        self._process.wait()


class HostPool:
    """Hosts that are free, by the environment that their workers are to have. Safe to use from threads."""

    def __init__(self, most: int = 2) -> None:
        self._free: list[tuple[tuple[str, frozenset[tuple[str, str]]], Host]] = []
        self._lock = threading.Lock()
        self._most = most

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with self._lock:
            for _, host in self._free:
                host.close()
            self._free.clear()

    def take(self, python: str, environment: Mapping[str, str]) -> Host:
        """A host of that interpreter and environment, which the caller gives back or closes."""
        key = (python, frozenset(environment.items()))
        with self._lock:
            for place, (made_for, host) in enumerate(self._free):
                if made_for == key:
                    del self._free[place]
                    if host.alive:
                        return host
                    host.close()
                    break
        return Host(python, environment)

    def give_back(self, python: str, environment: Mapping[str, str], host: Host) -> None:
        """Keeps the host for the next worker; the longest unused goes when there are too many."""
        with self._lock:
            self._free.append(((python, frozenset(environment.items())), host))
            surplus = self._free[: -self._most]
            del self._free[: -self._most]
        for _, old in surplus:
            old.close()
