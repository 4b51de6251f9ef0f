"""Asks a worker's interpreter what devices its torch can use; the runner itself never imports torch."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence

from runner.errors import UsageError
from runner.worker_process import worker_command, worker_environment

PROBE_TIMEOUT_S = 120.0


def missing_devices(devices: Sequence[str]) -> dict[str, str]:
    """The devices that are not there, each with the reason. ``UsageError`` when torch cannot be asked."""
    command = [*worker_command()[:-1], "harness.probe", *devices]
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
        raise UsageError(
            "--devices: torch cannot be imported here; install it (make bench does), then try again"
        ) from None
    return {str(device): str(why) for device, why in answer.items()}
