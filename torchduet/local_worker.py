"""A worker in the calling process: it answers a job's calls itself."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.codec import from_json
from harness.devices import CPU, Device, named
from harness.schema import Case, Job
from harness.worker.status_page import Activity

if TYPE_CHECKING:
    from harness.program import Compilers
    from harness.workload import Workload


@dataclass
class LocalWorker:
    """Answers like ``harness.worker``, for a model of this process. There is no timeout.

    Output goes to ``log``, like a worker's output. ``tell`` is called with each activity.
    """

    build: Callable[[Case], Workload]
    compilers: Compilers
    log: Path
    tell: Callable[[Activity], object]
    _answer: Callable[[dict[str, Any]], Any] | None = None
    _activity: Activity = field(default_factory=lambda: Activity(phase="import"))
    _device: Device = CPU

    def call(self, request: Mapping[str, Any], deadline: float) -> dict[str, Any]:  # noqa: ARG002
        """Answers one call. The reply goes through JSON, as it would over a pipe."""
        from harness.worker.main import Answers, guarded

        if self._answer is None:
            job = from_json(Job, request["job"])
            self._answer = Answers(job, self._announce, self.build, self.compilers)
            self._device = named(job.device)
        with _printing_to(self.log):
            answered = guarded(self._answer, dict(request), self._device)
        reply: dict[str, Any] = json.loads(json.dumps(answered, allow_nan=False))
        return reply

    def activity(self) -> Activity:
        return self._activity

    def _announce(self, activity: Activity) -> None:
        self._activity = activity
        self.tell(activity)


@contextmanager
def _printing_to(path: Path) -> Iterator[None]:
    """Redirects to this file what Python prints, and what libraries write to standard error."""
    with (
        path.open("a", encoding="utf-8", errors="backslashreplace") as log,
        contextlib.redirect_stdout(log),
        contextlib.redirect_stderr(log),
        _standard_error_in(log.fileno()),
    ):
        yield


@contextmanager
def _standard_error_in(log: int) -> Iterator[None]:
    """Redirects file descriptor 2: C++ code, such as torch's profiler, writes to it directly."""
    try:
        original = os.dup(2)
    except OSError:  # the process has no standard error
        yield
        return
    try:
        os.dup2(log, 2)
        yield
    finally:
        os.dup2(original, 2)
        os.close(original)
