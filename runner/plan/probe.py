"""Questions to a worker's interpreter, which may import torch and model libraries. The parent may not."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from harness.codec import to_json
from harness.loading.own_model import is_own_model
from harness.schema import Case, Job
from runner.errors import UsageError
from runner.labels import plain
from runner.plan.compilers import Ask, Usable
from runner.plan.interpreter import worker_command, worker_environment

PROBE_TIMEOUT_S = 180.0  # importing torch for the first time, from a cold disk


def missing_devices(devices: Sequence[str]) -> dict[str, str]:
    """Missing device -> reason. Raises ``UsageError`` if torch cannot be imported."""
    answer = _ask("harness.probes.devices", devices)
    if answer is None:
        raise UsageError(
            "--devices: torch cannot be imported here; install it (make bench does), then try again"
        )
    return {str(device): str(why) for device, why in answer.items()}


def ask_suite(
    suite: str, patterns: Sequence[str], python: str | None = None
) -> dict[str, tuple[str, ...] | str]:
    """Name or glob -> the matching names in the suite's library, or a sentence why there are none.

    Raises ``UsageError`` if the library cannot be imported.
    """
    answer = _ask("harness.probes.names", [suite, *patterns], python)
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
    device_type: str,
    names: Sequence[str] = (),
    python: str | None = None,
    *,
    own: Mapping[str, str] | None = None,
    suites: Iterable[str] = (),
) -> dict[str, Usable]:
    """Whether these compilers (no names: all) can be used, as a worker's interpreter reports.

    ``python`` is another interpreter. ``own`` maps the user's own compilers to their functions; files in
    ``suites`` may register more compilers with torch. Raises ``UsageError`` if torch cannot be imported.
    """
    words = [f"--own={name}={source}" for name, source in (own or {}).items()]
    words += [f"--file={file}" for suite in suites if (file := file_of(suite))]
    answer = _ask("harness.probes.compilers", [device_type, *names, *words], python)
    if answer is None:
        raise UsageError(
            "--compilers: torch cannot be imported here; install it (make bench does), then try again"
        )
    return {
        str(name): Usable(what=str(found["what"]), why_not=found["why"], modes=tuple(found["modes"]))
        for name, found in answer.items()
    }


def asking_for(jobs: Iterable[Job], python: str | None = None) -> Ask:
    """``usable_compilers`` with the own compilers and files of these jobs."""
    own = {name: source for job in jobs for name, source in job.own_compilers.items()}
    suites = dict.fromkeys(job.case.suite for job in jobs)

    def ask(device_type: str, names: Sequence[str]) -> Mapping[str, Usable]:
        return usable_compilers(device_type, names, python, own=own, suites=suites)

    return ask


def file_of(suite: str) -> str | None:
    """The user's file or module that this suite is in; None for a bundled suite."""
    if is_own_model(suite):
        return suite.rpartition(":")[0]
    return suite if suite.endswith(".py") else None


def what_is_wrong(
    cases: Sequence[Case], inductor_config: Sequence[str], python: str | None = None
) -> str | None:
    """A sentence about what is wrong with these cases of the user's own models, or these settings.

    None if nothing is wrong, or if the interpreter gave no answer: the job's worker then finds the fault.
    """
    question = json.dumps({"cases": to_json(tuple(cases)), "inductor_config": list(inductor_config)})
    answer = _ask("harness.probes.plan", [question], python)
    why = None if answer is None else answer.get("wrong")
    return None if why is None else plain(str(why))


def _ask(module: str, arguments: Sequence[str], python: str | None = None) -> dict[str, Any] | None:
    """The JSON object that ``python -m module`` prints last; None if it prints none.

    Raises ``UsageError`` after ``PROBE_TIMEOUT_S``.
    """
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
    except subprocess.TimeoutExpired:
        raise UsageError(
            f"{plain(command[0])} did not answer in {PROBE_TIMEOUT_S:g} s; try again when the machine is "
            "less busy, or check that this Python can import torch"
        ) from None
    except (ValueError, IndexError):
        return None
    return answer if isinstance(answer, dict) else None
