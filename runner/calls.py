"""Calls to one worker, with deadlines, and with failures as exceptions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Any, Protocol

from harness.codec import from_json, to_json
from harness.schema import Failure, Job, Status
from harness.status_page import Activity

PHASE_OF = {
    "open": "build",
    "hand_over": "build",
    "agree": "build",
    "shake": "build",
    "prepare": "compile",
    "warm_up": "measure",
    "measure": "measure",
    "finish": "measure",
    "conclude": "measure",
}
"""Which of the phases of ``--phase-timeout`` a call belongs to."""


class Worker(Protocol):
    """What a job needs of a worker: ``runner.worker_process`` has the real one, tests a fake."""

    def call(self, request: Mapping[str, Any], deadline: float) -> dict[str, Any]: ...

    def activity(self) -> Activity: ...


Launch = Callable[[Job], AbstractContextManager[Worker]]


class CandidateFailed(Exception):
    """A call came back as failed."""

    def __init__(self, status: Status, failure: Failure) -> None:
        super().__init__(failure.message)
        self.status = status
        self.failure = failure


class Calls:
    """Calls to one worker: all of them within the job's time, each within its phase's."""

    def __init__(self, worker: Worker, job: Job, clock: Callable[[], float]) -> None:
        self._worker = worker
        self._protocol = job.protocol
        self._job: Any = to_json(job)
        self._clock = clock
        self._deadline = clock() + job.protocol.timeout_s

    def __call__(self, name: str, **arguments: Any) -> dict[str, Any]:
        """The answer. ``CandidateFailed`` when the worker says so, ``WorkerLost`` when it is gone."""
        limit = self._protocol.phase_timeouts_s.get(PHASE_OF[name])
        deadline = self._deadline if limit is None else min(self._deadline, self._clock() + limit)
        reply = self._worker.call({"call": name, "job": self._job, **arguments}, deadline)
        self._job = None  # the worker has it now
        if "failed" in reply:
            failed = reply["failed"]
            raise CandidateFailed(Status(failed["status"]), from_json(Failure, failed["failure"]))
        return dict(reply["ok"])

    def running(self) -> str:
        """The variant that the worker said it was running last."""
        return self._worker.activity().variant
