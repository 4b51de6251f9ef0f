"""Python with torch imported already: what a run starts with ``python -m`` is forked from it.

    python tests/cli/warm.py SOCKET DESCRIPTOR    forks a process for each request, until the pipe is closed

A run's hosts and probes otherwise spend most of their time on importing torch. Each is a process of its own
all the same, with the arguments, folder, environment variables, descriptors and session it has otherwise.
An interpreter of other settings (``READ_ONCE``) has a server of its own.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import importlib
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import time
import traceback
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import IO, Any

ROOT = Path(__file__).resolve().parents[2]
FORKED = ("harness.probes.", "harness.worker.host")
READ_ONCE = ("GOMP_", "KMP_", "LD_", "MALLOC_", "MKL_", "OMP_", "PYTHON", "TORCH_")  # at a start, by imports
LONGEST = 1 << 17  # bytes of a request
FAR = 500  # a descriptor that nobody has
START_S = 300.0


# -- in a run --------------------------------------------------------------------------
class Forked:
    """A process that the server forked, with the interface of ``subprocess.Popen`` that a run uses."""

    def __init__(self, pid: int, end: int, stdin: IO[bytes] | None) -> None:
        self.pid, self.stdin = pid, stdin
        self.returncode: int | None = None
        self._end = end  # a pidfd

    def poll(self) -> int | None:
        return self._ended(0)

    def wait(self, timeout: float | None = None) -> int:
        code = self._ended(timeout)
        if code is None:
            raise subprocess.TimeoutExpired(["forked"], timeout or 0.0)
        return code

    def _ended(self, timeout: float | None) -> int | None:
        if self.returncode is None and select.select([self._end], [], [], timeout)[0]:
            os.close(self._end)
            self.returncode = -signal.SIGKILL  # a probe's answer says how its process ended
        return self.returncode

    def kill(self) -> None:
        if self.poll() is None:
            signal.pidfd_send_signal(self._end, signal.SIGKILL)


def fork_instead(module: Any, folder: Path, life: int) -> None:
    """Lets this module of the runner start its processes so. ``life``: the read end of an open pipe."""
    started = partial(_started, folder, life)
    module.subprocess = SimpleNamespace(**{**vars(subprocess), "Popen": started})


def _started(folder: Path, life: int, command: Sequence[str], *, env: Mapping[str, str], **how: Any) -> Any:
    words = command[command.index("-m") + 1 :] if "-m" in command else [""]
    settings = {n: v for n, v in env.items() if n.startswith(READ_ONCE) and n != "PYTHONPATH"}
    if command[0] != sys.executable or not words[0].startswith(FORKED):
        return subprocess.Popen(command, env=env, **how)
    server = _server(folder, life, settings)
    far, near = os.pipe() if how["stdin"] == subprocess.PIPE else (os.open(os.devnull, os.O_RDONLY), None)
    nothing = os.open(os.devnull, os.O_WRONLY)
    outputs = [nothing if to == subprocess.DEVNULL else to.fileno() for to in (how["stdout"], how["stderr"])]
    passed = [*how.get("pass_fds", ())]
    request = {"words": words, "cwd": str(Path.cwd()), "environment": dict(env), "passed": passed}
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as asked:
        asked.connect(server)
        socket.send_fds(asked, [json.dumps(request).encode()], [far, *outputs, *passed])
        pid, (end, *_), *_ = socket.recv_fds(asked, 20, 1)
    os.close(far)
    os.close(nothing)
    return Forked(int(pid), end, None if near is None else os.fdopen(near, "wb", buffering=0))


def _server(folder: Path, life: int, settings: Mapping[str, str]) -> str:
    """The socket of a server whose interpreter has these settings; starts it if there is none."""
    name = hashlib.sha256(json.dumps(sorted(settings.items())).encode()).hexdigest()[:8]
    path = folder / name
    with (folder / f"{name}-lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not path.exists():
            others = {n: v for n, v in os.environ.items() if not n.startswith(READ_ONCE)}
            subprocess.Popen(
                [sys.executable, __file__, str(path), str(life)],
                env={**others, **settings},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                cwd=ROOT,
                pass_fds=(life,),
                start_new_session=True,
            )
            deadline = time.monotonic() + START_S
            while not path.exists():
                assert time.monotonic() < deadline
                time.sleep(0.02)
    return str(path)


# -- the server ------------------------------------------------------------------------
def serve(path: str, life: int) -> None:
    sys.path[0] = str(ROOT)
    host = importlib.import_module("harness.worker.host")
    with host._importing():
        host._import_torch()
    del sys.modules[host.__name__]  # it runs as a program
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listening:
        listening.bind(f"{path}-new")
        listening.listen()
        Path(f"{path}-new").rename(path)
        while True:
            ready, *_ = select.select([listening.fileno(), life], [], [], 1.0)
            with contextlib.suppress(ChildProcessError):
                while os.waitpid(-1, os.WNOHANG)[0]:
                    pass
            if life in ready:
                return
            if listening.fileno() in ready:
                with listening.accept()[0] as asking:
                    _fork(asking, (listening.fileno(), life))


def _fork(asking: socket.socket, ours: tuple[int, ...]) -> None:
    data, given, *_ = socket.recv_fds(asking, LONGEST, 16)
    pid = os.fork()
    if pid == 0:
        for descriptor in (*ours, asking.fileno()):
            os.close(descriptor)
        _become(json.loads(data), given)
    end = os.pidfd_open(pid)
    socket.send_fds(asking, [str(pid).encode()], [end])
    for descriptor in (end, *given):
        os.close(descriptor)


def _become(request: dict[str, Any], given: list[int]) -> None:
    """Runs what ``python -m`` with these words would. Does not return."""
    code: Any = 1
    try:
        os.setsid()
        os.chdir(request["cwd"])
        os.environ.clear()
        os.environ.update(request["environment"])
        moved = [fcntl.fcntl(descriptor, fcntl.F_DUPFD, FAR) for descriptor in given]
        for descriptor in given:
            os.close(descriptor)
        for source, number in zip(moved, (0, 1, 2, *request["passed"]), strict=True):
            os.dup2(source, number)
            os.close(source)
        sys.path[0] = request["cwd"]
        sys.path[1:1] = os.environ.get("PYTHONPATH", "").split(os.pathsep)
        sys.argv[1:] = request["words"][1:]
        importlib.invalidate_caches()
        runpy.run_module(request["words"][0], run_name="__main__", alter_sys=True)
        code = 0
    except SystemExit as end:
        code = end.code or 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code if isinstance(code, int) else 1)


if __name__ == "__main__":
    serve(sys.argv[1], int(sys.argv[2]))
