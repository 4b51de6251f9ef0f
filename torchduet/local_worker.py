"""A worker that is no process: the calls of a job, answered here."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from harness.codec import from_json
from harness.schema import Case, Job
from harness.status_page import Activity

if TYPE_CHECKING:
    from typing_extensions import Self

    from harness.workload import Workload


class LocalWorker:
    """Answers as ``harness.worker`` does, on a model that is already here. It cannot be ended: no timeout."""

    def __init__(self, build: Callable[[Case], Workload]) -> None:
        self._build = build
        self._answer: Callable[[dict[str, Any]], Any] | None = None
        self._activity = Activity(phase="import")

    def __enter__(self) -> Self:
        import torch

        self._random = torch.random.get_rng_state()
        self._threads = torch.get_num_threads()
        used = torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
        self._gpu = torch.cuda.current_device() if used else None
        return self

    def __exit__(self, *_: object) -> None:
        import torch

        torch.random.set_rng_state(self._random)
        torch.set_num_threads(self._threads)
        if self._gpu is not None:
            torch.cuda.set_device(self._gpu)

    def call(self, request: Mapping[str, Any], deadline: float) -> dict[str, Any]:  # noqa: ARG002
        """Answers one call, in the form in which it would come back over a pipe."""
        from harness.worker import answers, guarded

        if self._answer is None:
            self._answer = answers(from_json(Job, request["job"]), self._announce, self._build)
        reply: dict[str, Any] = json.loads(json.dumps(guarded(self._answer, dict(request)), allow_nan=False))
        return reply

    def activity(self) -> Activity:
        return self._activity

    def _announce(self, activity: Activity) -> None:
        self._activity = activity
