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
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import IO, Any

from harness.failures import exit_name
from harness.schema import Failure, Status
from harness.worker.status_page import Activity, StatusPage
from runner.engine.replies import LONGEST_LINE, invalid, parsed
from runner.engine.worker_start import Start
from runner.names import plain

TICK_S = 0.5  # the parent wakes this often while a worker runs; a shorter time would disturb the worker
GRACE_S = 2.0  # for a worker to end before it is killed

LONGEST_TAIL = 300  # characters
LONGEST_LOG = 64 << 20  # bytes; of a longer log, the first and the last MiB are kept
KEPT = 1 << 20
CUT = b"\n... the middle of this log was cut out, because it was longer than 64 MiB ...\n"


class WorkerLost(Exception):
    """The worker died or was killed. ``activity`` is its last activity."""

    def __init__(self, failure: Failure, activity: Activity, status: Status = Status.CRASH) -> None:
        super().__init__(failure.message)
        self.failure = failure
        self.activity = activity
        self.status = status


class WorkerProcess(AbstractContextManager["WorkerProcess"]):
    """One running worker. As a context manager, it ends the whole process group on exit."""

    def __init__(
        self,
        start: Start,
        environment: Mapping[str, str],
        log: Path,
        on_tick: Callable[[Activity], object],
        max_memory_bytes: int | None = None,
    ) -> None:
        self._log = log
        self._call_begins = _size(log)  # the place in the log
        self._max_memory = max_memory_bytes
        self._on_tick = on_tick
        request_read, self._requests = os.pipe()
        self._replies, reply_write = os.pipe()
        self._page_file: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - closed in __exit__
        self._page = StatusPage(self._page_file.fileno())
        descriptors = (request_read, reply_write, self._page_file.fileno())
        try:
            log.parent.mkdir(exist_ok=True)  # a model may have removed it
            with log.open("ab") as output:
                self._process, self._release = start(environment, log.parent, output, descriptors)
        finally:
            os.close(request_read)
            os.close(reply_write)
        self._buffer = bytearray()

    def call(self, request: Mapping[str, Any], deadline: float) -> dict[str, Any]:
        """Sends one call and waits for its reply until ``deadline`` (``time.monotonic``).

        Raises ``WorkerLost`` if the worker dies, sends an invalid reply, or exceeds its time or memory.
        """
        self._call_begins = _size(self._log)
        try:
            os.write(self._requests, json.dumps(request).encode() + b"\n")
        except OSError:
            raise self._lost() from None
        line = self._line(deadline)
        try:
            return parsed(line)
        except ValueError as error:
            raise self._invalid(error) from None

    def _line(self, deadline: float) -> bytes:
        """The next line of the pipe."""
        end = self._buffer.find(b"\n")
        with selectors.DefaultSelector() as selector:
            selector.register(self._replies, selectors.EVENT_READ)
            while end < 0:
                left = deadline - time.monotonic()
                if left <= 0:
                    raise self._ended(Status.TIMEOUT, "timeout", "out of time")
                if selector.select(min(TICK_S, left)):
                    end = self._receive()
                elif self._process.poll() is not None:
                    # the worker has ended, though a child may keep the pipe open
                    raise self._lost()
                self._on_tick(self._page.read())
                self._watch_memory()
                shorten(self._log)
        line = bytes(self._buffer[:end])
        del self._buffer[: end + 1]
        return line

    def _receive(self) -> int:
        """Reads what the pipe holds. The place of the line's end in the buffer; -1 if it has not come yet."""
        part = os.read(self._replies, 1 << 20)
        if not part:
            raise self._lost()
        before = len(self._buffer)
        self._buffer += part
        end = self._buffer.find(b"\n", before)
        if max(end, before) > LONGEST_LINE:
            raise self._invalid(ValueError(f"a line is longer than {LONGEST_LINE >> 20} MiB"))
        return end

    def activity(self) -> Activity:
        return self._page.read()

    def __exit__(self, *_: object) -> None:
        """Asks the worker to end, kills its process group after ``GRACE_S``, and reaps the worker."""
        with suppress(OSError):
            os.write(self._requests, b'{"call": "end"}\n')
        os.close(self._requests)
        self._wait(GRACE_S)
        self._kill_group()
        self._wait(None)
        self._release()
        shorten(self._log)
        os.close(self._replies)
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
            sizes = f"{held / 1e9:.3g} GB held, --max-memory is {self._max_memory / 1e9:.3g} GB"
            raise self._ended(Status.OOM, "out of memory", f"out of memory ({sizes})")

    def _ended(self, status: Status, kind: str, why: str) -> WorkerLost:
        """Kills the worker because it exceeded a limit."""
        activity = self._killed()
        message = f"{why} during {_during(activity)}"
        return WorkerLost(Failure(kind=kind, message=message, phase=plain(activity.phase)), activity, status)

    def _invalid(self, error: ValueError) -> WorkerLost:
        """Kills the worker because it, or its model, wrote what is no reply."""
        activity = self._killed()
        return WorkerLost(invalid(error, plain(activity.phase)), activity)

    def _killed(self) -> Activity:
        activity = self._page.read()
        self._kill_group()
        self._wait(None)
        return activity

    def _lost(self) -> WorkerLost:
        self._wait(GRACE_S)
        code = self._process.poll()
        activity = self._killed() if code is None else self._page.read()
        kind = "closed its pipe" if code is None else exit_name(code)
        tail = log_tail(self._log, 0 if was_shortened(self._log) else self._call_begins)
        message = f"the worker ended ({kind}) during {_during(activity)}"
        message += f"; the end of its log: {tail}" if tail else ""
        return WorkerLost(Failure(kind=kind, message=message, phase=plain(activity.phase)), activity)


def _during(activity: Activity) -> str:
    return plain(f"{activity.phase} of {activity.variant}" if activity.variant else activity.phase)


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


def shorten(log: Path) -> None:
    """Cuts the middle out of a log that is longer than ``LONGEST_LOG``. The worker may write meanwhile."""
    with suppress(OSError):
        if log.stat().st_size <= LONGEST_LOG:
            return
        with log.open("r+b", buffering=0) as head, log.open("ab", buffering=0) as end:
            head.seek(-KEPT, os.SEEK_END)
            tail = head.read(KEPT)
            head.truncate(KEPT)
            head.seek(KEPT)
            # at this place, also if the worker has written there: ``was_shortened`` looks here
            head.write(CUT)
            end.write(tail)


def was_shortened(log: Path) -> bool:
    try:
        with log.open("rb") as file:
            file.seek(KEPT)
            return file.read(len(CUT)) == CUT
    except OSError:
        return False


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def log_tail(path: Path, start: int = 0) -> str:
    """The last three lines of a log after this byte, joined to one line of printable characters."""
    try:
        with path.open("rb") as log:
            log.seek(max(start, path.stat().st_size - 4096))
            text = log.read().decode(errors="replace")
    except OSError:
        return ""
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    words = " ".join(" ".join(lines[-3:]).split())
    return "".join(c if c.isprintable() else "?" for c in words)[-LONGEST_TAIL:]
