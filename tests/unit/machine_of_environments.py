"""Workers that pretend, one for each of two environments."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from harness.codec import to_json
from harness.schema import BASELINE, WHOLE, Environment, Job, Status
from harness.worker.status_page import Activity
from runner.engine.worker_process import WorkerLost
from tests.factories import make_parity

ENVIRONMENTS = tuple(
    Environment(name=name, python=f"/{name}/python", asked=name, torch=torch)
    for name, torch in (("old", "2.2"), ("new", "2.13"))
)
SPEED = {"old": 1.0, "new": 0.5}  # of eager: seconds
Reply = dict[str, Any]
Fault = Reply | WorkerLost


class Machine:
    """All workers of a job, and the clock. ``faults`` at (environment, session of it, call, candidate)."""

    def __init__(self, faults: Mapping[tuple[str, int, str, str], Fault] | None = None) -> None:
        self.faults = dict(faults or {})
        self.calls: list[tuple[str, str]] = []
        self.jobs: list[Job] = []
        self.running: dict[str, str] = {}
        self.recompiling: dict[str, dict[str, int]] = {}
        self.disagree = ""
        self.unsteady = False
        self.now = 0.0
        self.iterations: set[int] = set()
        self.open = 0
        self.most_open = 0

    @contextlib.contextmanager
    def launch(self, job: Job) -> Iterator[Worker]:
        self.jobs.append(job)
        session = sum(other.environments == job.environments for other in self.jobs)
        self.open += 1
        self.most_open = max(self.most_open, self.open)
        try:
            yield Worker(self, job, session)
        finally:
            self.open -= 1


class Worker:
    def __init__(self, machine: Machine, job: Job, session: int) -> None:
        self._machine = machine
        self._env = job.environments[0].name
        self._session = session
        self._job = job

    def activity(self) -> Activity:
        return Activity(variant=self._machine.running.get(self._env, BASELINE))

    def call(self, request: Mapping[str, Any], deadline: float) -> Reply:
        name, candidate = request["call"], request.get("candidate", "")
        self._machine.calls.append((self._env, f"{name} {candidate}".strip()))
        fault = self._machine.faults.pop((self._env, self._session, name, candidate), None)
        if isinstance(fault, WorkerLost):
            raise fault
        return fault if fault is not None else {"ok": getattr(self, f"_{name}")(request)}

    def _open(self, request: Mapping[str, Any]) -> Reply:
        self.imported = request.get("imported")
        model = {"parameters": 7, "parameter_bytes": 28, "input_shapes": [], "batch_size": 8}
        return {"model": model, "environment": {"torch": self._job.environments[0].torch}}

    def _export(self, request: Mapping[str, Any]) -> Reply:
        Path(request["path"]).write_text("weights")
        return {}

    def _cross_parity(self, request: Mapping[str, Any]) -> Reply:
        if self.imported is None:
            return {"status": "pass_due_to_skip", "parity": None, "notes": []}
        assert Path(self.imported).read_text() == "weights"
        bad = self._machine.disagree == self._env
        status = Status.FAIL_ACCURACY if bad else Status.PASS
        found = to_json(make_parity(status))
        status = Status.EAGER_TWO_RUNS_DIFFER if self._machine.unsteady else status
        return {"status": status.value, "parity": found, "notes": ["a note"]}

    def _prepare(self, request: Mapping[str, Any]) -> Reply:
        metrics = {"compilation_latency_s": 1.0}
        return {
            "status": "pass",
            "parity": None,
            "metrics": metrics,
            "notes": [],
            "first_calls_s": [9.0, 1.0],
        }

    def _warm_up(self, request: Mapping[str, Any]) -> Reply:
        iterations = 4 if self._env == "old" else 7
        calls = {name: [9.0, 1.0, 1.0, iterations / 8] for name in request["candidates"]}
        return {"metrics": {"iterations_per_sample": iterations}, "first_calls_s": calls}

    def _measure(self, request: Mapping[str, Any]) -> Reply:
        self._machine.iterations.add(request["iterations"])
        order = [BASELINE, *request["candidates"]]
        self._machine.now += 1.0
        eager = SPEED[self._env] * (1 + 0.001 * self._machine.now)
        seconds = {name: eager / (1 + place) for place, name in enumerate(order)}
        one = {"order": order, "seconds": seconds, "minor_faults": dict.fromkeys(order, 0.0)}
        return {"rounds": [one], "recompiled": self._machine.recompiling.get(self._env, {})}

    def _finish(self, request: Mapping[str, Any]) -> Reply:
        size = 10 if self._env == "old" else 20
        return {"metrics": {BASELINE: {"peak_memory_bytes": size}, "a": {"peak_memory_bytes": 5}}}

    def _conclude(self, request: Mapping[str, Any]) -> Reply:
        return {"metrics": {WHOLE: {"flops_per_step": 8}}}
