"""Runs one job file in this process, to investigate a single number."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from harness.codec import from_json
from harness.failures import JobFailed
from harness.schema import Job
from harness.worker.session import Session
from harness.worker.status_page import Activity


def replay(path: Path) -> int:
    """Prints a JSON line for each step of the job at ``path``; 0, or 1 when something failed."""
    job = from_json(Job, json.loads(path.read_text(encoding="utf-8")))
    session = Session(job, _tell)
    ready = []
    try:
        model, _ = session.open()
        _print({"model": model.parameters, "inputs": list(model.input_shapes)})
        for candidate in job.candidates:
            try:
                status, _, metrics, _ = session.prepare(candidate)
            except JobFailed as failed:
                _print({"candidate": candidate, "status": failed.status.value, "why": str(failed)})
                continue
            ready.append(candidate)
            _print({"candidate": candidate, "status": status.value, **metrics})
        if job.protocol.performance:
            _print(session.warm_up())
            rounds, _ = session.measure(job.protocol.repeat or job.protocol.min_rounds)
            for timed in rounds:
                _print({"order": timed.order, "seconds": timed.seconds})
    except JobFailed as failed:
        _print({"status": failed.status.value, "why": str(failed)})
        return 1
    return 0 if len(ready) == len(job.candidates) else 1


def _tell(activity: Activity) -> None:
    if activity.phase in ("build", "compile", "check"):
        print(f"# {activity.phase} {activity.variant}".rstrip(), file=sys.stderr, flush=True)


def _print(value: object) -> None:
    print(json.dumps(value), flush=True)
