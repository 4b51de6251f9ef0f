"""A worker in the calling process: it answers a job's calls itself."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.codec import from_json
from harness.devices import CPU, named
from harness.schema import Case, Job
from harness.worker.status_page import Activity

if TYPE_CHECKING:
    from typing_extensions import Self

    from harness.workload import Workload
    from torchduet.asked import Compile


class LocalWorker:
    """Answers like ``harness.worker``, for a model of this process. There is no timeout.

    Output goes to ``log``, like a worker's output. ``tell`` is called with each activity.
    """

    def __init__(
        self,
        build: Callable[[Case], Workload],
        compilers: Mapping[str, Compile],
        log: Path,
        tell: Callable[[Activity], None],
    ) -> None:
        self._build = build
        self._compilers = compilers
        self._log = log
        self._tell = tell
        self._answer: Callable[[dict[str, Any]], Any] | None = None
        self._activity = Activity(phase="import")
        self._device = CPU

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None: ...

    def call(self, request: Mapping[str, Any], deadline: float) -> dict[str, Any]:  # noqa: ARG002
        """Answers one call. The reply goes through JSON, as it would over a pipe."""
        from harness.worker.main import answers, guarded

        if self._answer is None:
            job = from_json(Job, request["job"])
            self._answer = answers(job, self._announce, self._build, self._compilers)
            self._device = named(job.device)
        with _printing_to(self._log):
            answered = guarded(self._answer, dict(request), self._device)
        reply: dict[str, Any] = json.loads(json.dumps(answered, allow_nan=False))
        return reply

    def activity(self) -> Activity:
        return self._activity

    def _announce(self, activity: Activity) -> None:
        self._activity = activity
        self._tell(activity)


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
        kept = os.dup(2)
    except OSError:  # the process has no standard error
        yield
        return
    try:
        os.dup2(log, 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
