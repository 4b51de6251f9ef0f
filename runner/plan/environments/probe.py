"""Asks an interpreter for its versions and devices, and says why it cannot be a worker."""

from __future__ import annotations

import contextlib
import errno
import json
import platform
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from harness.devices import PLATFORMS
from harness.failures import exit_name
from runner.errors import UsageError
from runner.labels import plain, reason
from runner.plan.interpreter import base_environment, worker_environment
from runner.plan.probe import LIMIT_S, NoAnswer, printed_by

OLDEST_PYTHON = (3, 10)
OLDEST_TORCH = (2, 0)
NOT_COMPARED = ("devices", "prefix")
"""Facts that ``same`` ignores."""

Facts = Mapping[str, Any]


def probe(python: Path, name: str, flag: str = "--envs") -> Facts:
    """The facts that the interpreter reports. Raises ``UsageError`` if it cannot be a worker."""
    shown = plain(str(python))
    instead = "put it back, or start a new run" if flag == "--resume" else "give the path of a Python"
    if not python.exists():
        raise UsageError(f"{flag}: {name}: there is no {shown}; {instead}")
    command = [str(python), "-m", "harness.probes.environment"]
    try:
        lines, code, log = printed_by(command, worker_environment(None, base_environment()), LIMIT_S)
    except NoAnswer as error:
        why = str(error).removeprefix("it ")
        raise UsageError(f"{flag}: {name}: {shown} {why}; check that it can import torch") from None
    except OSError as error:
        why = f"cannot be run ({error.strerror})"
        if error.errno == errno.ENOEXEC:
            why = f"is not a program for this machine ({platform.machine()})"
        raise UsageError(f"{flag}: {name}: {shown} {why}; {instead}") from None
    last = reason(log[-1].strip()) if log else "it printed no message"
    facts: dict[str, Any] = {}
    for line in lines:
        with contextlib.suppress(ValueError):
            content = json.loads(line)
            facts.update(content if isinstance(content, dict) else {})
    if "python" not in facts:
        raise UsageError(f"{flag}: {name}: {shown} is not a working Python ({last})")
    if why_not := _why_not(facts, code, last):
        raise UsageError(f"{flag}: {name}: {why_not}")
    return facts


def _why_not(facts: Facts, code: int, last: str) -> str | None:  # noqa: PLR0911 - one per fault
    """The fault and its cure as a sentence; None if there is no fault. ``last``: the last line of the log."""
    python = facts["python"]
    if tuple(facts["version"]) < OLDEST_PYTHON:
        return f"its Python is {python}; a worker needs {'.'.join(map(str, OLDEST_PYTHON))} or later"
    if facts["machine"] != platform.machine():
        return f"its Python is for {facts['machine']}, this machine is {platform.machine()}"
    if "torch_error" not in facts and "torch_file" not in facts:
        return f"importing its torch ends the process ({exit_name(code)}: {last}); reinstall torch"
    if facts.get("torch_error"):
        why = reason(" ".join(str(facts["torch_error"]).split()))
        return f"its torch cannot be used ({why}); reinstall torch for Python {python}"
    if "torch_error" in facts:
        return "it has no torch; install torch there, or write torch==2.2.2 to have an environment made"
    if _numbers(facts.get("torch")) < OLDEST_TORCH:
        return f"its torch is {facts.get('torch')}; a worker needs 2.0 or later"
    return None


def same(first: Facts, second: Facts) -> bool:
    """Whether two interpreters are the same environment: equal versions and settings."""
    names = (first.keys() | second.keys()) - set(NOT_COMPARED)
    return all(first.get(name) == second.get(name) for name in names)


def versions_text(facts: Facts) -> str:
    """``torch 2.2.2+cu121, Python 3.11.7, CUDA 12.1, triton 2.2.0``"""
    named = {"torch": "torch", "python": "Python", **PLATFORMS}
    named.update({name: name for name in ("triton", "transformers", "timm", "numpy")})
    return ", ".join(f"{label} {facts[name]}" for name, label in named.items() if facts.get(name))


def _numbers(version: object) -> tuple[int, ...]:
    parts = str(version).split("+", maxsplit=1)[0].split(".")[:2]
    return tuple(int(part) if part.isdecimal() else 0 for part in parts)
