"""The parent's handle on one worker process: start, call, end.

The worker leads its own process group and session. The parent can therefore end all of its
children with it, and Ctrl-C reaches the parent only.
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
from harness.worker.status_page import Activity, StatusPage
from runner.engine.worker_start import Start
from runner.plan.interpreter import exit_name

if TYPE_CHECKING:
    from typing_extensions import Self  # typing's own from Python 3.11

TICK_S = 0.5  # the parent wakes this often while a worker runs; a shorter time would disturb the worker
GRACE_S = 2.0  # for a worker to end before it is killed


class WorkerLost(Exception):
    """The worker died or was killed. ``activity`` is its last activity."""

    def __init__(self, failure: Failure, activity: Activity, status: Status = Status.CRASH) -> None:
        super().__init__(failure.message)
        self.failure = failure
        self.activity = activity
        self.status = status


class WorkerProcess:
    """One running worker. As a context manager, it ends the whole process group on exit."""

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
        descriptors = (request_read, reply_write, page)
        try:
            with log.open("ab") as output:
                self._running = start(environment, log.parent, output, descriptors)
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

        Raises ``WorkerLost`` if the worker dies, sends an invalid reply, or exceeds its time or memory.
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
                    raise self._ended(Status.TIMEOUT, "timeout", "out of time")
                if selector.select(min(TICK_S, left)):
                    part = os.read(self._replies, 1 << 20)
                    if not part:
                        raise self._lost()
                    self._buffer += part
                elif self._process.poll() is not None:
                    # the worker has ended, though a child may keep the pipe open
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
        """The worker's current activity, from its status page."""
        return self._page.read()

    def close(self) -> None:
        """Asks the worker to end, kills its process group after ``GRACE_S``, and reaps the worker."""
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
            # a worker that was just forked does not lead a group yet
            with suppress(ProcessLookupError):
                os.kill(self._process.pid, signal.SIGKILL)

    def _watch_memory(self) -> None:
        if self._max_memory is None:
            return
        held = resident_bytes(self._process.pid)
        if held > self._max_memory:
            sizes = f"{bytes_text(held)} held, --max-memory is {bytes_text(self._max_memory)}"
            raise self._ended(Status.OOM, "out of memory", f"out of memory ({sizes})")

    def _ended(self, status: Status, kind: str, why: str) -> WorkerLost:
        """Kills the worker because it exceeded a limit."""
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
        message += f"; the end of its log: {tail}" if tail else ""
        return WorkerLost(Failure(kind=kind, message=message, phase=activity.phase), activity)


def resident_bytes(pid: int) -> int:
    """Resident bytes of the process and its descendants. Shared pages count once per process."""
    import psutil  # imported here, so that --help does not need it

    total = 0
    try:
        worker = psutil.Process(pid)
        processes = [worker, *worker.children(recursive=True)]
    except psutil.Error:
        return 0
    for process in processes:
        try:
            total += process.memory_info().rss
        except psutil.Error:
            continue  # the process has ended
    return total


def bytes_text(count: float) -> str:
    """``1.5 GB``"""
    return f"{count / 1e9:.3g} GB"


def log_tail(path: Path, characters: int = 300) -> str:
    """The last three lines of a log, joined to one line of printable characters."""
    try:
        with path.open("rb") as log:
            log.seek(max(0, path.stat().st_size - 4096))
            text = log.read().decode(errors="replace")
    except OSError:
        return ""
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    words = " ".join(" ".join(lines[-3:]).split())
    return "".join(c if c.isprintable() else "?" for c in words)[-characters:]
