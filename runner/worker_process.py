"""The parent's handle on one worker process: start, call, end. No job logic here.

The worker is the leader of a process group and session of its own, so that
everything it starts can be ended with it, and Ctrl-C reaches the parent alone.
"""

from __future__ import annotations

import json
import os
import selectors
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from harness.schema import Failure, Status
from harness.status_page import Activity, StatusPage
from harness.suite_files import ROOT
from runner.memory_watch import bytes_text, resident_bytes
from runner.starts import cache_settings
from runner.worker_start import Start

if TYPE_CHECKING:
    from typing_extensions import Self  # typing's own from Python 3.11

TICK_S = 0.5  # how often the parent wakes while a worker works: rarely, so as not to disturb it
GRACE_S = 2.0

# glibc gives freed memory back to the system and takes it again on every step, which
# moves an eager training step by a quarter; these settings keep the heap. See docs/BIAS.md.
GLIBC_SETTINGS = {
    "MALLOC_TRIM_THRESHOLD_": str(1 << 34),
    "MALLOC_TOP_PAD_": str(1 << 26),
    "MALLOC_MMAP_THRESHOLD_": str(1 << 34),
}


HUB_OFFLINE = {"HF_HUB_OFFLINE": "1", "HF_HUB_DISABLE_TELEMETRY": "1"}
HUB_ONLINE = {"HF_HUB_OFFLINE": "0", "HF_HUB_DISABLE_TELEMETRY": "1", "HF_HUB_ETAG_TIMEOUT": "10"}


class WorkerLost(Exception):
    """The worker died or was ended; ``activity`` is what it was at."""

    def __init__(self, failure: Failure, activity: Activity, status: Status = Status.CRASH) -> None:
        super().__init__(failure.message)
        self.failure = failure
        self.activity = activity
        self.status = status


def worker_environment(
    threads: int | None,
    base: Mapping[str, str] = os.environ,
    *,
    online: bool = False,
    preload: str | None = None,
    caches: Path | None = None,
) -> dict[str, str]:
    """The worker's environment: the parent's, project and current folder on its path, settled allocation.

    Unless it is to be ``online``, model libraries are told not to look anything up. ``preload``
    is a library that comes before all others (an allocator), ``caches`` the folder of the compile caches.
    """
    environment = dict(base)
    environment["PYTHONPATH"] = os.pathsep.join(
        part for part in (str(ROOT), str(Path.cwd()), base.get("PYTHONPATH", "")) if part
    )
    environment.update(HUB_ONLINE if online else HUB_OFFLINE)
    for name, value in GLIBC_SETTINGS.items():
        environment.setdefault(name, value)
    if threads is not None:
        environment["OMP_NUM_THREADS"] = str(threads)
        environment["MKL_NUM_THREADS"] = str(threads)
    environment.update(cache_settings(caches))
    if preload is not None:
        environment["LD_PRELOAD"] = ":".join(part for part in (preload, base.get("LD_PRELOAD", "")) if part)
    return environment


class WorkerProcess:
    """One running worker. Use as a context manager: leaving it ends the whole process group."""

    def __init__(
        self,
        start: Start,
        environment: Mapping[str, str],
        log: Path,
        on_tick: Callable[[Activity], None],
        max_memory_bytes: int | None = None,
    ) -> None:
        self._log = log
        self._max_memory = max_memory_bytes
        self._on_tick = on_tick
        request_read, self._requests = os.pipe()
        self._replies, reply_write = os.pipe()
        self._page_file: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - closed in close()
        page = self._page_file.fileno()
        self._page = StatusPage(page)
        handed = (request_read, reply_write, page)
        try:
            with log.open("ab") as output:
                self._running = start(environment, log.parent, output, handed)
                self._process = self._running.process
        finally:
            os.close(request_read)
            os.close(reply_write)
        self._buffer = b""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def call(self, request: Mapping[str, Any], deadline: float) -> dict[str, Any]:
        """Sends one call and waits for its reply until ``deadline`` (``time.monotonic``).

        Raises ``WorkerLost`` when the worker dies, answers nonsense, or is out of time.
        """
        try:
            os.write(self._requests, json.dumps(request).encode() + b"\n")
        except OSError:
            raise self._lost() from None
        with selectors.DefaultSelector() as selector:
            selector.register(self._replies, selectors.EVENT_READ)
            while b"\n" not in self._buffer:
                left = deadline - time.monotonic()
                if left <= 0:
                    raise self._out_of_time()
                if selector.select(min(TICK_S, left)):
                    part = os.read(self._replies, 1 << 20)
                    if not part:
                        raise self._lost()
                    self._buffer += part
                elif self._process.poll() is not None:
                    # a child of the worker may hold the pipe open: the worker itself is gone
                    raise self._lost()
                self._on_tick(self._page.read())
                self._watch_memory()
        line, self._buffer = self._buffer.split(b"\n", 1)
        try:
            reply = json.loads(line)
        except ValueError:
            raise self._lost() from None
        if not isinstance(reply, dict):
            raise self._lost()
        return reply

    def activity(self) -> Activity:
        """What the worker says it is at."""
        return self._page.read()

    def close(self) -> None:
        """Ends the process group, politely and then not, and reaps the worker."""
        if self._requests < 0:
            return
        with suppress(OSError):
            os.write(self._requests, b'{"call": "end"}\n')
        os.close(self._requests)
        self._requests = -1
        self._wait(GRACE_S)
        self._kill_group()
        self._wait(None)
        self._running.release()
        os.close(self._replies)
        self._page.close()
        self._page_file.close()

    def _wait(self, seconds: float | None) -> None:
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(seconds)

    def _kill_group(self) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        if self._process.poll() is None:
            # a worker that was forked a moment ago leads no group yet
            with suppress(ProcessLookupError):
                os.kill(self._process.pid, signal.SIGKILL)

    def _watch_memory(self) -> None:
        if self._max_memory is None:
            return
        held = resident_bytes(self._process.pid)
        if held > self._max_memory:
            sizes = f"{bytes_text(held)} held, --max-memory is {bytes_text(self._max_memory)}"
            raise self._ended(Status.OOM, "out of memory", f"out of memory ({sizes})")

    def _out_of_time(self) -> WorkerLost:
        return self._ended(Status.TIMEOUT, "timeout", "out of time")

    def _ended(self, status: Status, kind: str, why: str) -> WorkerLost:
        """Ends the worker for a reason of ours."""
        activity = self._page.read()
        self._kill_group()
        self._wait(None)
        variant = f" of {activity.variant}" if activity.variant else ""
        message = f"{why} during {activity.phase}{variant}"
        return WorkerLost(Failure(kind=kind, message=message, phase=activity.phase), activity, status)

    def _lost(self) -> WorkerLost:
        self._wait(GRACE_S)
        if self._process.poll() is None:
            self._kill_group()
            self._wait(None)
            kind = "closed its pipe"
        else:
            kind = exit_name(self._process.returncode or 0)
        activity = self._page.read()
        tail = log_tail(self._log)
        message = f"the worker ended ({kind}) during {activity.phase}"
        message += f" of {activity.variant}" if activity.variant else ""
        message += f"; its last words: {tail}" if tail else ""
        return WorkerLost(Failure(kind=kind, message=message, phase=activity.phase), activity)


def exit_name(code: int) -> str:
    """``SIGSEGV`` for -11, ``exit 3`` for 3."""
    if code >= 0:
        return f"exit {code}"
    try:
        return signal.Signals(-code).name
    except ValueError:
        return f"signal {-code}"


def log_tail(path: Path, characters: int = 300) -> str:
    """The last words in a log, on one line, printable characters only."""
    try:
        with path.open("rb") as log:
            log.seek(max(0, path.stat().st_size - 4096))
            text = log.read().decode(errors="replace")
    except OSError:
        return ""
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    words = " ".join(" ".join(lines[-3:]).split())
    return "".join(c if c.isprintable() else "?" for c in words)[-characters:]
