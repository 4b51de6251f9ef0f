"""What a script of ``harness.worker.localize.script`` runs."""

from __future__ import annotations

import sys
from typing import Any

from harness.codec import from_json
from harness.devices import of
from harness.schema import Job, Status
from harness.worker.localize.script import NOT_RUN, NOT_SHOWN, SHOWN
from harness.worker.localize.search import judge


def replay(job_as_json: Any, compiler: str, name: str) -> int:
    """Prints the verdict on the submodule ``name`` compiled alone; returns the exit code."""
    job = from_json(Job, job_as_json)
    why_not = of(job.device).why_missing()
    if why_not:
        print(f"this machine cannot run it: {why_not}", file=sys.stderr)
        return NOT_RUN
    verdict = judge(job, compiler, name)
    print(f"{compiler} on {name or 'the whole model'}: {verdict.status.value}")
    if verdict.why:
        print(verdict.why)
    return {Status.FAIL_ACCURACY: SHOWN, Status.PASS: NOT_SHOWN}.get(verdict.status, NOT_RUN)
