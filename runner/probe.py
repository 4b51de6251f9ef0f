"""Questions for a worker's interpreter, whose answers need torch or a model library: never imported here."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from typing import Any

from runner.compilers import Usable
from runner.errors import UsageError
from runner.worker_process import worker_environment
from runner.worker_start import worker_command

PROBE_TIMEOUT_S = 120.0


def missing_devices(devices: Sequence[str]) -> dict[str, str]:
    """The devices that are not there, each with the reason. ``UsageError`` when torch cannot be asked."""
    answer = _ask("harness.probe", devices)
    if answer is None:
        raise UsageError(
            "--devices: torch cannot be imported here; install it (make bench does), then try again"
        )
    return {str(device): str(why) for device, why in answer.items()}


def ask_suite(
    suite: str, patterns: Sequence[str], python: str | None = None
) -> dict[str, tuple[str, ...] | str]:
    """For each name or glob what the suite's library has by it, or a sentence why nothing.

    ``UsageError`` when the library cannot be asked.
    """
    answer = _ask("harness.find", [suite, *patterns], python)
    if answer is None:
        raise UsageError(
            f"--only: the model library of suite {suite} cannot be imported here, so {', '.join(patterns)} "
            "cannot be looked up; install it (make bench does), or choose from --list"
        )
    return {
        str(pattern): str(found["error"]) if "error" in found else tuple(found["names"])
        for pattern, found in answer.items()
    }


def usable_compilers(
    device_type: str, names: Sequence[str] = (), python: str | None = None
) -> dict[str, Usable]:
    """What a worker's interpreter (``python``: another one) says of these compilers, or of all.

    ``UsageError`` when it cannot be asked.
    """
    answer = _ask("harness.probe_compilers", [device_type, *names], python)
    if answer is None:
        raise UsageError(
            "--compilers: torch cannot be imported here; install it (make bench does), then try again"
        )
    return {
        str(name): Usable(what=str(found["what"]), why_not=found["why"], modes=tuple(found["modes"]))
        for name, found in answer.items()
    }


def _ask(module: str, arguments: Sequence[str], python: str | None = None) -> dict[str, Any] | None:
    """The JSON object that ``python -m module`` prints last; None when it prints none in time."""
    command = [*worker_command(*([python] if python else []))[:-1], module, *arguments]
    try:
        done = subprocess.run(
            command,
            env=worker_environment(None),
            capture_output=True,
            text=True,
            timeout=PROBE_TIMEOUT_S,
            check=False,
        )
        answer = json.loads(done.stdout.splitlines()[-1])
    except (subprocess.TimeoutExpired, ValueError, IndexError):
        return None
    return answer if isinstance(answer, dict) else None
