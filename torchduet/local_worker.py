"""A worker in the calling process: it answers a job's calls itself."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, redirect_stderr, redirect_stdout, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.codec import from_json
from harness.devices import named
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
    _answered: Callable[..., dict[str, Any]] | None = None
    _activity: Activity = field(default_factory=lambda: Activity(phase="import"))

    def call(self, request: Mapping[str, Any], deadline: float) -> dict[str, Any]:  # noqa: ARG002
        """Answers one call. The reply goes through JSON, as it would over a pipe."""
        from harness.worker.main import Answers, guarded

        if self._answered is None:
            job = from_json(Job, request["job"])
            answers = Answers(job, self._announce, self.build, self.compilers)
            self._answered = partial(guarded, answers, device=named(job.device))
        with _printing_to(self.log):
            answered = self._answered(dict(request))
        reply: dict[str, Any] = json.loads(json.dumps(answered, allow_nan=False))
        return reply

    def activity(self) -> Activity:
        return self._activity

    def _announce(self, activity: Activity) -> None:
        self._activity = activity
        self.tell(activity)


@contextmanager
def _printing_to(path: Path) -> Iterator[None]:
    """Redirects to this file what Python prints, and what libraries write to standard error.

    C++ code, such as torch's profiler, writes to file descriptor 2 directly.
    """
    with ExitStack() as stack:
        log = stack.enter_context(path.open("a", encoding="utf-8", errors="backslashreplace"))
        stack.enter_context(redirect_stdout(log))
        stack.enter_context(redirect_stderr(log))
        with suppress(OSError):  # the process has no standard error
            original = os.dup(2)
            stack.callback(os.close, original)
            stack.callback(os.dup2, original, 2)
            os.dup2(log.fileno(), 2)
        yield
